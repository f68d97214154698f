//! As HTTP endpoints of the configuration, and the server that they are on.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header::CONTENT_TYPE};
use axum::response::{IntoResponse as _, Response};
use turnmill::config::HttpTool;
use turnmill::tool::Tool;

use super::Outside;

const TOOLS: &str = r#"
[[tools]]
name = "greet"
description = "Greet somebody."
method = "GET"
url = "http://HOST/greet?name={name}"
read_only = true
parameters = '{"type":"object","properties":{"name":{"type":"string"}},"required":["name"],"additionalProperties":false}'

[[tools]]
name = "price"
description = "Say a price."
method = "POST"
url = "http://HOST/price"
cache_ttl = "1h"
cost_per_call = "0.002"
deterministic = true
[tools.parameters]
type = "object"
properties.item.type = "string"
properties.currency = { type = "string", default = "EUR" }
required = ["item"]

[[tools]]
name = "book"
description = "Book something."
method = "PUT"
url = "http://HOST/book"
writes = true
requires_approval = true
approval_timeout = "1m"
on_unknown_outcome = "report"
parameters.type = "object"

[[tools]]
name = "flaky"
description = "Fail as often as asked."
method = "GET"
url = "http://HOST/flaky"
retry = { max = 3, initial = "1ms", max_delay = "5ms" }
parameters = { type = "object", properties.fail_times.type = "integer", required = ["fail_times"] }

[[tools]]
name = "refuse"
description = "Refuse for good."
method = "DELETE"
url = "http://HOST/refuse"
retry = 3
parameters.type = "object"

[[tools]]
name = "down"
description = "Be down."
method = "GET"
url = "http://HOST/down"
parameters.type = "object"

[[tools]]
name = "broken"
description = "Return what may be no result."
method = "GET"
url = "http://HOST/broken/{how}"
parameters = { type = "object", properties.how.type = "string", required = ["how"] }
output = { type = "object", properties.count = { type = "integer", minimum = 1 } }

[[tools]]
name = "slow"
description = "Never answer."
method = "GET"
url = "http://HOST/slow"
timeout = "50ms"
parameters.type = "object"

[[tools]]
name = "outside"
description = "Reach out."
method = "GET"
url = "http://HOST/outside"
parameters.type = "object"
"#;

pub async fn tools(outside: &Arc<Outside>) -> Vec<Arc<dyn Tool>> {
    #[derive(serde::Deserialize)]
    struct Configured {
        tools: Vec<HttpTool>,
    }
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let app = Router::new().fallback(answer).with_state(Arc::clone(outside));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let configured: Configured = toml::from_str(&TOOLS.replace("HOST", &host)).unwrap();
    let tool = |tool: &HttpTool| Arc::new(tool.tool().unwrap()) as Arc<dyn Tool>;
    configured.tools.iter().map(tool).collect()
}

async fn answer(State(outside): State<Arc<Outside>>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let url: reqwest::Url = format!("http://host{uri}").parse().unwrap();
    let query = |name: &str| url.query_pairs().find(|(key, _)| key == name).unwrap().1.into_owned();
    let path = url.path().trim_start_matches('/');
    let (tool, rest) = path.split_once('/').unwrap_or((path, ""));
    let calls = outside.heard(tool, headers["idempotency-key"].to_str().unwrap());
    let json = |text: &str| ([(CONTENT_TYPE, "application/json")], text.to_owned()).into_response();
    match tool {
        "greet" => format!("hello, {}", query("name")).into_response(),
        "price" => {
            let asked: serde_json::Value = serde_json::from_str(&body).unwrap();
            json(&format!(r#"{{"unit": 1.0, "item": {}, "cents": 9007199254740993}}"#, asked["item"]))
        }
        "flaky" if calls <= query("fail_times").parse().unwrap() => StatusCode::BAD_GATEWAY.into_response(),
        "flaky" => json("\"done\""),
        "refuse" => (StatusCode::CONFLICT, "never").into_response(),
        "down" => (StatusCode::SERVICE_UNAVAILABLE, "db-3 does not answer").into_response(),
        "broken" => match rest {
            "null" => json("null"),
            "zero" => json(r#"{"count": 0}"#),
            _ => json(r#"{"count": 1}"#),
        },
        "slow" => std::future::pending().await,
        _ => "out".into_response(),
    }
}
