//! `[[providers]]`, `[[prices]]`, and an agent's models.

use std::path::Path;
use std::time::Duration;

use super::super::Provider;
use super::{load_text, problems};
use crate::model::Api;

const AGENT: &str = "[[agents]]\nname = \"a\"\n";

#[test]
fn every_field_is_read() {
    let text = r#"
[[agents]]
name = "a"
model = ["anthropic::m", "local::org/m:7b"]
temperature = 0
max_reply_tokens = 100
max_reply_time = "1m"
prompt_cache = false
model_options = { thinking = { type = "enabled", budget_tokens = 1024 }, top_p = 0.9 }

[[providers]]
name = "local"
api = "openai"
base_url = "http://127.0.0.1:8080/v1"
api_key = "${LOCAL_KEY}"
headers = { X-Team = "${TEAM}" }
max_retries = 0
max_retry_after = "2m"
idle_timeout = "5s"

[[prices]]
model = "anthropic::m"
input = "3"
output = "15"
cache_read = "0.30"
"#;
    let config = load_text(text, &[("LOCAL_KEY", "k-1"), ("TEAM", "seven")]).config;
    let agent = &config.agents[0];
    assert_eq!(agent.model.iter().collect::<Vec<_>>(), ["anthropic::m", "local::org/m:7b"]);
    let options = agent.options().unwrap();
    assert_eq!(
        (options.temperature, options.max_reply_tokens, options.prompt_cache),
        (Some(0.0), Some(100), false)
    );
    let more = serde_json::json!({"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_p": 0.9});
    assert_eq!(serde_json::Value::Object(options.more), more);
    let provider = &config.providers[0];
    assert_eq!((provider.api, provider.api_key.as_deref()), (Some(Api::OpenAi), Some("k-1")));
    assert_eq!((provider.headers["X-Team"].as_str(), provider.max_retries), ("seven", 0));
    assert_eq!(
        (provider.max_retry_after, provider.idle_timeout),
        (Duration::from_secs(120), Duration::from_secs(5))
    );
    assert!(!format!("{config:?}").contains("k-1"), "a key is not shown");
    let price = &config.prices[0];
    assert_eq!((price.output.to_string(), price.cache_write), ("15".into(), None));
}

#[test]
fn a_known_name_says_the_rest_and_its_key_goes_nowhere_else() {
    let loaded = load_text("[[providers]]\nname = \"anthropic\"\n", &[("ANTHROPIC_API_KEY", "k-2")]);
    let provider = &loaded.config.providers[0];
    assert_eq!(provider.base_url.as_deref(), Some("https://api.anthropic.com/v1"));
    assert_eq!((provider.api, provider.api_key.as_deref()), (Some(Api::Anthropic), Some("k-2")));
    let elsewhere = "[[providers]]\nname = \"openai\"\nbase_url = \"http://h/v1\"\n";
    let provider = &load_text(elsewhere, &[("OPENAI_API_KEY", "k-3")]).config.providers[0];
    assert_eq!((provider.api, provider.api_key.as_deref()), (Some(Api::OpenAi), None));
}

#[test]
fn a_key_that_is_not_there_is_a_problem_of_those_who_ask() {
    let loaded = load_text("[[providers]]\nname = \"openai\"\n", &[]);
    let [problem] = loaded.unset.as_slice() else { panic!("{:?}", loaded.unset) };
    assert!(problem.message.contains("OPENAI_API_KEY is not set"), "{problem}");
    let empty = [("OPENAI_API_KEY".to_owned(), String::new())].into();
    assert!(Provider::unlisted("openai", &empty).unwrap().unwrap_err().contains("is empty"));
    let unlisted = Provider::unlisted("anthropic", &Default::default()).unwrap();
    assert!(unlisted.unwrap_err().contains("ANTHROPIC_API_KEY is not set"));
    assert!(Provider::unlisted("elsewhere", &Default::default()).is_none());
}

#[test]
fn a_key_comes_from_a_file_beside_the_configuration() {
    let text = "[[providers]]\nname = \"openai\"\napi_key_file = \"script.json\"\n";
    let folder = super::Folder::new(text);
    std::fs::write(folder.0.path().join("script.json"), " \n").unwrap();
    let provider = &folder.load(&[]).unwrap().config.providers[0];
    assert!(Path::is_absolute(provider.api_key_file.as_deref().unwrap()));
    let (field, message) = provider.endpoint().err().unwrap();
    assert_eq!(field, "api_key_file");
    assert!(message.ends_with("script.json is empty"), "{message}");
    std::fs::write(folder.0.path().join("script.json"), " sk-1\n").unwrap();
    assert!(provider.endpoint().is_ok());
}

#[test]
fn each_problem_has_its_line() {
    let text = format!(
        "{AGENT}model = []\ntemperature = 3.5\nmax_reply_time = \"0s\"\nmodel_options.stream = false\n\
         [[providers]]\nname = \"a b\"\nbase_url = \"h\"\nidle_timeout = \"0s\"\napi_key = \"k\"\napi_key_file = \"f\"\n\
         headers.Host = \"x\"\n[[providers]]\nname = \"a b\"\napi = \"openai\"\n\
         [[prices]]\nmodel = \"m\"\ninput = \"1\"\noutput = \"1\"\n"
    );
    let found = problems(text, &[]);
    let starts = [
        "turnmill.toml:3: agents[0].model: is empty",
        "turnmill.toml:4: agents[0].temperature: expected a number from 0 to 2",
        "turnmill.toml:5: agents[0].max_reply_time: expected more than 0s",
        "turnmill.toml:6: agents[0].model_options: stream cannot be set here",
        "turnmill.toml:7: providers[0].api: is missing",
        "turnmill.toml:8: providers[0].name: expected one or more of A-Z",
        "turnmill.toml:9: providers[0].base_url: is not a URL",
        "turnmill.toml:10: providers[0].idle_timeout: expected more than 0s",
        "turnmill.toml:12: providers[0].api_key_file: is set, and so is api_key",
        "turnmill.toml:13: providers[0].headers.Host: cannot be set here",
        "turnmill.toml:14: providers[1].base_url: is missing",
        "turnmill.toml:15: providers[1].name: \"a b\" is the name of an earlier one",
        "turnmill.toml:15: providers[1].name: expected one or more of A-Z",
        "turnmill.toml:18: prices[0].model: expected a provider's name and a model",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (problem, start) in found.iter().zip(starts) {
        assert!(problem.starts_with(start), "{problem}\n{start}");
    }
}
