//! What pages of the documentation say of the code: the tests and files that they name are there.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).unwrap()
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// A file, or those below a folder, as one text.
fn text_of(path: &Path) -> String {
    if path.is_file() {
        return fs::read_to_string(path).unwrap();
    }
    fs::read_dir(path).unwrap().map(|entry| text_of(&entry.unwrap().path())).collect()
}

#[test]
fn every_statement_of_the_specifications_has_one_row_and_the_tests_that_a_row_names_are_there() {
    let page = page("specification.md");
    let mut numbers = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| P") || line.starts_with("| A")) {
        let cells: Vec<&str> = row.split(" | ").map(|cell| cell.trim_matches(['|', ' '])).collect();
        let [number, _, places, tests, state] = cells[..] else { panic!("a row of five cells: {row}") };
        numbers.push(number.to_owned());
        let reason = ["waits: ", "not offered: "].iter().any(|why| state.starts_with(why));
        assert!(state == "built" || reason, "{number}: the state {state:?}");
        assert!(
            state != "built" || tests.contains('`') || tests == "the same",
            "{number} is built and has no test"
        );
        for place in quoted(places).filter(|place| place.contains('/')) {
            assert!(root().join(place).exists(), "{number}: there is no {place}");
        }
        let mut file: Option<PathBuf> = None;
        for name in quoted(tests) {
            if name.contains('/') {
                let path = root().join(name);
                assert!(path.exists(), "{number}: there is no {name}");
                file = Some(path);
            } else {
                let file = file.as_ref().unwrap_or_else(|| panic!("{number}: {name} of which file?"));
                let found = text_of(file).contains(&format!("fn {name}("));
                assert!(found, "{number}: {} has no test {name}", file.display());
            }
        }
    }
    let expected: Vec<String> =
        (1..=116).map(|n| format!("P{n}")).chain((1..=37).map(|n| format!("A{n}"))).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn every_option_of_the_attribute_has_a_row_in_the_page_of_tools() {
    let options = fs::read_to_string(root().join("macros/src/options.rs")).unwrap();
    let names = options.lines().filter_map(|line| line.strip_prefix("const ")?.split_once(": &str = \""));
    let names: Vec<&str> = names.map(|(_, text)| text.trim_end_matches("\";")).collect();
    assert!(names.len() > 10, "{names:?}");
    let page = page("tools.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    for name in names {
        let told = rows.iter().any(|row| quoted(row.split(" | ").next().unwrap()).any(|told| told == name));
        assert!(told, "docs/tools.md has no row for the option {name}");
    }
}

#[test]
fn every_file_that_the_page_of_promises_names_is_there() {
    let page = page("guarantees.md");
    let paths = quoted(&page).filter(|text| text.starts_with("src/") || text.starts_with("tests/"));
    for path in paths {
        assert!(root().join(path).exists(), "docs/guarantees.md names {path}, which is not there");
    }
}

#[test]
fn the_test_in_the_readme_is_one_that_runs() {
    let [readme, test] =
        ["README.md", "tests/readme.rs"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let (_, code) = test.split_once("\n\n").unwrap();
    assert!(
        readme.contains(&format!("```rust\n{code}```\n")),
        "the README has other code than tests/readme.rs"
    );
}
