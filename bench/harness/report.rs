//! What was measured: a table, a chart, and raw data.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::run::{Result, median};

/// Everything that a run of the benchmark has measured.
#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    ratios: Map<String, Value>,
    /// Who did not take part, and why.
    absent: BTreeMap<String, String>,
}

/// One contestant in one workload, over the rounds.
struct Row {
    workload: String,
    contestant: String,
    unit: String,
    figures: Vec<f64>,
}

impl Report {
    /// What an earlier run has written into a folder: nothing where there is none.
    pub fn read(folder: &Path) -> Self {
        let text = std::fs::read_to_string(folder.join("latest.json")).unwrap_or_default();
        let whole: Value = serde_json::from_str(&text).unwrap_or_default();
        let text = |row: &Value, field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let rows = whole["results"].as_array().into_iter().flatten();
        Self {
            rows: (rows)
                .map(|row| Row {
                    workload: text(row, "workload"),
                    contestant: text(row, "contestant"),
                    unit: text(row, "unit"),
                    figures: row["rounds"]
                        .as_array()
                        .into_iter()
                        .flatten()
                        .filter_map(Value::as_f64)
                        .collect(),
                })
                .collect(),
            ratios: whole["ratios"].as_object().cloned().unwrap_or_default(),
            absent: serde_json::from_value(whole["absent"].clone()).unwrap_or_default(),
        }
    }

    /// Takes in what a contestant did, instead of what it did in an earlier run, and prints it.
    pub fn row(&mut self, workload: &str, contestant: &str, unit: &str, figures: Vec<f64>) -> f64 {
        let row =
            Row { workload: workload.into(), contestant: contestant.into(), unit: unit.into(), figures };
        println!("  {}", row.line());
        let middle = median(&row.figures);
        let same = |other: &&mut Row| other.workload == workload && other.contestant == contestant;
        match self.rows.iter_mut().find(same) {
            Some(other) => *other = row,
            None => self.rows.push(row),
        }
        middle
    }

    /// Takes in a ratio that design or documentation speak of.
    pub fn ratio(&mut self, name: &str, value: f64) {
        println!("  {name} = {}", short(value));
        self.ratios.insert(name.into(), json!((value * 1e4).round() / 1e4));
    }

    /// Somebody does not take part.
    pub fn absent(&mut self, contestant: &str, why: &str) {
        println!("  {contestant} does not take part: {why}");
        self.absent.insert(contestant.into(), why.into());
    }

    /// Somebody does, whatever an earlier run says.
    pub fn present(&mut self, contestant: &str) {
        self.absent.remove(contestant);
    }

    /// The table, as Markdown.
    pub fn table(&self) -> String {
        let mut table = String::from("| workload | contestant | median | least | most | unit |\n");
        table.push_str("| --- | --- | ---: | ---: | ---: | --- |\n");
        for row in &self.rows {
            let (least, most) = row.spread();
            let cells = [median(&row.figures), least, most].map(short).join(" | ");
            let _ = writeln!(table, "| {} | {} | {cells} | {} |", row.workload, row.contestant, row.unit);
        }
        table.push_str("\n| ratio | value |\n| --- | ---: |\n");
        for (name, value) in &self.ratios {
            let _ = writeln!(table, "| `{name}` | {} |", short(value.as_f64().unwrap_or(f64::NAN)));
        }
        table
    }

    /// Writes `latest.json` and `chart.svg` into a folder.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let rows: Vec<Value> = (self.rows.iter())
            .map(|row| {
                let (least, most) = row.spread();
                json!({
                    "workload": row.workload, "contestant": row.contestant, "unit": row.unit,
                    "median": median(&row.figures), "min": least, "max": most, "rounds": row.figures,
                })
            })
            .collect();
        let whole = json!({
            "machine": machine(), "ratios": self.ratios, "results": rows, "absent": self.absent,
        });
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("latest.json"), serde_json::to_string_pretty(&whole)? + "\n")?;
        Ok(std::fs::write(folder.join("chart.svg"), self.chart())?)
    }

    /// Turns per second of each contestant, a group of bars for each workload.
    fn chart(&self) -> String {
        const LEFT: usize = 260;
        const WIDTH: usize = 520;
        let rates: Vec<&Row> = self.rows.iter().filter(|row| row.unit == RATE).collect();
        let mut body = String::new();
        let (mut y, mut group, mut most) = (20, "", 1.0);
        for row in &rates {
            if row.workload != group {
                group = &row.workload;
                let of_group = rates.iter().filter(|other| other.workload == group);
                most = of_group.map(|other| median(&other.figures)).fold(1.0, f64::max);
                y += 30;
                let _ =
                    writeln!(body, "<text x=\"10\" y=\"{y}\" class=\"h\">{}, turns/s</text>", escaped(group));
                y += 8;
            }
            let middle = median(&row.figures);
            let length = (middle / most * WIDTH as f64).max(1.0);
            let ours = if row.contestant.starts_with("Turnmill") { "ours" } else { "other" };
            let _ = writeln!(
                body,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"{LEFT}\" y=\"{y}\" \
                 width=\"{length:.0}\" height=\"16\" class=\"{ours}\"/><text x=\"{:.0}\" y=\"{}\">{}</text>",
                LEFT - 8,
                y + 13,
                escaped(&row.contestant),
                LEFT as f64 + length + 6.0,
                y + 13,
                short(middle),
            );
            y += 22;
        }
        let (width, height) = (LEFT + WIDTH + 80, y + 20);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
             font-size=\"13\"><style>text{{fill:#222}}.h{{font-weight:bold}}.ours{{fill:#c2571a}}.other{{fill:#9aa5b1}}\
             </style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
        )
    }
}

/// The unit of rates.
pub const RATE: &str = "turns/s";

impl Row {
    fn spread(&self) -> (f64, f64) {
        self.figures.iter().fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(*x), most.max(*x)))
    }

    fn line(&self) -> String {
        let (least, most) = self.spread();
        let [middle, least, most] = [median(&self.figures), least, most].map(short);
        format!("{:<28} {middle:>9} {}   ({least} to {most})", self.contestant, self.unit)
    }
}

/// Three figures that count, or all of a large number.
fn short(figure: f64) -> String {
    match figure.abs() {
        x if x >= 100.0 => format!("{figure:.0}"),
        x if x >= 10.0 => format!("{figure:.1}"),
        x if x >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Processors and memory.
fn machine() -> Value {
    let read = |path: &str, name: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    json!({
        "processor": read("/proc/cpuinfo", "model name"), "cores": cores,
        "memory": read("/proc/meminfo", "MemTotal"), "system": std::env::consts::OS,
    })
}
