//! What becomes of arguments in a URL, and which URLs are refused.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tool::ErrorKind;

fn filled(template: &str, arguments: Value) -> Result<(String, Value), ToolError> {
    let Value::Object(arguments) = arguments else { panic!("an object") };
    let (url, rest) = Template::parse(template).unwrap().fill(arguments, true)?;
    Ok((url.into(), Value::Object(rest)))
}

#[track_caller]
fn assert_url(template: &str, arguments: Value, expected: &str) {
    let (url, rest) = filled(template, arguments).unwrap();
    assert_eq!((url.as_str(), rest), (expected, json!({})));
}

#[track_caller]
fn assert_refused(template: &str, arguments: Value, says: &str) {
    let error = filled(template, arguments).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert!(error.message().contains(says), "{error}");
}

const ORDER: &str = "https://shop.example/orders/{id}/items";

#[test]
fn a_path_argument_stays_within_its_part() {
    let cases = [
        (json!("7"), "7"),
        (json!("a/b"), "a%2Fb"),
        (json!("a?b=c&d"), "a%3Fb%3Dc%26d"),
        (json!("#x"), "%23x"),
        (json!("50%"), "50%25"),
        (json!("%2F"), "%252F"),
        (json!("%2e%2e"), "%252e%252e"),
        (json!("a b"), "a%20b"),
        (json!(" "), "%20"),
        (json!("größe"), "gr%C3%B6%C3%9Fe"),
        (json!("../.."), "..%2F.."),
        (json!("..\\.."), "..%5C.."),
        (json!("..."), "..."),
        (json!("a;b:c@d"), "a%3Bb%3Ac%40d"),
        (json!("{id}"), "%7Bid%7D"),
        (json!("\r\n\t\u{0}"), "%0D%0A%09%00"),
        (json!("A-z_0.9~"), "A-z_0.9~"),
        (json!(1.0), "1.0"),
        (json!(9_007_199_254_740_993_u64), "9007199254740993"),
        (json!(u64::MAX), "18446744073709551615"),
        (json!(-3), "-3"),
        (json!(true), "true"),
    ];
    for (value, expected) in cases {
        assert_url(ORDER, json!({"id": value}), &format!("https://shop.example/orders/{expected}/items"));
    }
}

#[test]
fn a_path_argument_that_leads_elsewhere_is_refused() {
    for folded in [".", ".."] {
        assert_refused(ORDER, json!({"id": folded}), "with id the path of the URL has a part");
    }
    assert_refused("https://h/a/{x}{y}/b", json!({"x": ".", "y": "."}), "with x, y the path");
    assert_refused("https://h/a/.{x}", json!({"x": "."}), "the path");
    assert_refused("https://h/a/%2e{x}", json!({"x": "."}), "the path");
    assert_refused(ORDER, json!({"id": ""}), "must not be empty");
    for unfit in [json!(null), json!([1]), json!({"a": 1})] {
        assert_refused(ORDER, json!({"id": unfit}), "a string, a number or a boolean");
    }
    assert_refused(ORDER, json!({}), "the argument id");
    assert_refused(ORDER, json!({"id": "x".repeat(MAX_URL)}), "65568 bytes; it may have 65534");
}

#[test]
fn a_query_argument_stays_within_its_value() {
    let template = "https://h/p?q={q}&fixed=1";
    assert_url(
        template,
        json!({"q": "a&fixed=2#?/ +ö"}),
        "https://h/p?q=a%26fixed%3D2%23%3F%2F%20%2B%C3%B6&fixed=1",
    );
    assert_url(template, json!({"q": ""}), "https://h/p?q=&fixed=1");
    assert_url(template, json!({"q": ".."}), "https://h/p?q=..&fixed=1");
    assert_url("https://h/{a}/{a}?a={a}", json!({"a": 1}), "https://h/1/1?a=1");
    assert_refused(template, json!({"q": [1]}), "the argument q");
}

#[test]
fn what_is_left_becomes_parameters_or_stays() {
    let arguments = json!({
        "id": 7, "list": ["a b", 1.0, null, [1, 2]], "none": null, "object": {"b": 1, "a": [true]}, "empty": [], "ä&": "x",
    });
    assert_url(
        "https://h/{id}?v=1",
        arguments.clone(),
        "https://h/7?v=1&list=a%20b&list=1.0&list=%5B1%2C2%5D&object=%7B%22b%22%3A1%2C%22a%22%3A%5Btrue%5D%7D\
         &%C3%A4%26=x",
    );
    assert_url("https://h", json!({"a": 1, "b": false}), "https://h/?a=1&b=false");
    assert_url("https://h/?", json!({"a": 1}), "https://h/?a=1");
    assert_url("https://h:8443", json!({}), "https://h:8443/");

    let Value::Object(arguments) = arguments else { panic!("an object") };
    let (url, rest) = Template::parse("https://h/{id}").unwrap().fill(arguments, false).unwrap();
    let names: Vec<_> = rest.keys().map(String::as_str).collect();
    assert_eq!(
        (url.as_str(), names.as_slice()),
        ("https://h/7", ["list", "none", "object", "empty", "ä&"].as_slice())
    );
}

#[test]
fn a_parameter_that_the_tool_sets_is_nobody_elses() {
    let template = "https://h/p?tenant=7&order+id={id}";
    assert_refused(
        template,
        json!({"id": 1, "tenant": "8"}),
        "the argument tenant is set by the tool itself",
    );
    assert_refused(template, json!({"id": 1, "order id": "8"}), "the argument order id");
}

#[test]
fn urls_that_are_refused() {
    let cases = [
        ("", "begins with http"),
        ("ftp://h/", "begins with http"),
        ("{scheme}://h/", "begins with http"),
        ("https://{host}/", "has a placeholder in its host"),
        ("https://h:{port}/", "has a placeholder in its host"),
        ("https://u:p@h/", "has a user name or a password"),
        ("https://u@h", "has a user name or a password"),
        ("https://h/#x", "has a fragment"),
        ("https://h/{a}#{b}", "has a fragment"),
        ("https://h#x", "has a fragment"),
        ("https:///x", "has no host"),
        ("https://", "has no host"),
        ("https://[::1/", "is not a URL"),
        ("https://h:99999/", "is not a URL: invalid port"),
        ("https://a b/", "has white space in its host"),
        ("https://h/{", "has a brace that makes no placeholder such as {order_id}, at \"{\""),
        ("https://h/a}b", "has a brace"),
        ("https://h/{}", "has a brace"),
        ("https://h/{a b}", "has a brace"),
        ("https://h/{{a}}", "has a brace"),
        ("https://h/?q={a", "has a brace"),
        ("https://h/a b", "not written as it is sent"),
        ("https://h/ä", "not written as it is sent"),
        ("https://h/a/../b", "not written as it is sent"),
        ("https://h/%2e%2e/b", "not written as it is sent"),
        ("https://h\\a", "not written as it is sent"),
        ("https://h/?q=ä", "not written as it is sent"),
    ];
    for (url, says) in cases {
        let error = Template::parse(url).map(|_| "nothing is wrong").unwrap_err();
        assert!(error.contains(says), "{url}: {error}");
    }
}

#[test]
fn every_placeholder_is_a_required_property() {
    let url = Template::parse("https://h/{a}/{b}?c={c}&again={c}").unwrap();
    let schema = json!({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a", "c"]});
    assert_eq!(
        url.unpromised(&schema),
        [
            "{b} is not in `required` of `parameters`: a call could go without it",
            "{c} is not one of the properties of `parameters`",
        ]
    );
    assert_eq!(url.unpromised(&json!({"type": "object"})).len(), 3);
}

proptest! {
    #[test]
    fn any_argument_is_what_a_server_reads(path: String, query: String, name: String) {
        prop_assume!(!matches!(name.as_str(), "p" | "q"));
        let mut arguments = Map::from_iter([("p".into(), json!(path)), ("q".into(), json!(query))]);
        arguments.insert(name.clone(), json!(query));
        let template = Template::parse("https://h/a/{p}/b?q={q}").unwrap();
        match template.fill(arguments, true) {
            Ok((url, _)) => {
                let parts: Vec<_> = url.path_segments().unwrap().collect();
                prop_assert_eq!(parts.len(), 3);
                prop_assert_eq!(percent_decode_str(parts[1]).decode_utf8().unwrap(), path);
                let pairs: Vec<_> = url.query_pairs().into_owned().collect();
                prop_assert_eq!(pairs, [("q".to_owned(), query.clone()), (name, query)]);
            }
            Err(_) => prop_assert!(matches!(path.as_str(), "" | "." | "..")),
        }
    }
}
