//! The metrics of the service and of the libraries: the page that lists them, and the dashboard and
//! the alerts that use them.

use super::bench::{Bench, until};
use metrics::with_local_recorder;
use metrics_exporter_prometheus::PrometheusBuilder;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use tourbillon::MetricsExporter;
use tourbillon_cache::CacheExporter;

/// The labels whose values are for the user or the operator to choose, or for requests.
const OPEN: [&str; 7] = ["wheel", "cache", "store", "version", "method", "path", "status"];

/// The parts of the page, and the beginning of the names in each. The first that fits counts.
const PARTS: [(&str, &str); 4] = [
    ("caches", "tourbillon_cache_"),
    ("durable", "tourbillon_durable_"),
    ("wheels", "tourbillon_"),
    ("timerd", "timerd_"),
];

/// A metric as Prometheus scrapes it.
#[derive(Debug, Default)]
struct Metric {
    kind: String,
    help: String,
    labels: BTreeMap<String, BTreeSet<String>>,
}

type Metrics = BTreeMap<String, Metric>;

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Reads the text format of Prometheus.
fn read(text: &str) -> Metrics {
    let mut metrics = Metrics::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            metrics.entry(name.to_owned()).or_default().help = help.to_owned();
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            metrics.entry(name.to_owned()).or_default().kind = kind.to_owned();
        } else {
            let (series, _) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
            let metric = metrics.get_mut(family(name, &metrics)).unwrap();
            for (label, value) in matchers(labels) {
                if label != "le" {
                    metric.labels.entry(label).or_default().insert(value);
                }
            }
        }
    }
    metrics
}

/// Returns the name of the metric that a series belongs to.
fn family<'a>(series: &'a str, metrics: &Metrics) -> &'a str {
    let parts = ["_bucket", "_sum", "_count"].into_iter();
    let mut bases = parts.filter_map(|part| series.strip_suffix(part));
    let histogram =
        bases.find(|base| metrics.get(*base).is_some_and(|metric| metric.kind == "histogram"));
    histogram.unwrap_or(series)
}

/// Returns the label and the value of each matcher before the closing brace.
fn matchers(mut text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Some((matcher, rest)) = text.split_once('"') {
        if matcher.contains('}') {
            break;
        }
        let (value, rest) = rest.split_once('"').unwrap();
        let matcher = matcher.trim_start_matches([',', ' ']);
        let (label, _) = matcher.split_at(matcher.find(['=', '!']).unwrap());
        found.push((label.to_owned(), value.to_owned()));
        text = rest;
    }
    found
}

/// Returns the metrics that a service exports once it runs.
async fn of_a_service() -> Metrics {
    let bench = Bench::start().await;
    let metrics = until("all metrics", async || {
        let metrics = read(&bench.api.get("/metrics").await.text);
        let first = ["tourbillon_durable_attempts_total", "timerd_requests_total"];
        let rest = ["tourbillon_durable_lag_seconds", "timerd_connections_evicted_total"];
        first.into_iter().chain(rest).all(|name| metrics.contains_key(name)).then_some(metrics)
    })
    .await;
    bench.stop().await;
    metrics
}

/// Returns the metrics of wheels and caches.
fn of_the_libraries() -> Metrics {
    let recorder = PrometheusBuilder::new().set_buckets(&[1.0]).unwrap().build_recorder();
    let exporters = with_local_recorder(&recorder, || {
        (MetricsExporter::new("connections"), CacheExporter::new("sessions"))
    });
    let metrics = read(&recorder.handle().render());
    drop(exporters);
    metrics
}

/// Returns the row of a metric on the page.
fn row(name: &str, metric: &Metric) -> String {
    let unit = ["seconds", "bytes"]
        .into_iter()
        .find(|unit| name.ends_with(&format!("_{unit}")))
        .unwrap_or_default();
    let labels = metric.labels.iter().map(|(label, values)| {
        if OPEN.contains(&&**label) {
            return format!("`{label}`");
        }
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        format!("`{label}` ({})", values.join(", "))
    });
    let labels: Vec<String> = labels.collect();
    format!("| `{name}` | {} | {unit} | {} | {} |\n", metric.kind, labels.join(", "), metric.help)
}

/// Returns the page with the tables of these metrics.
fn page(mut text: String, metrics: &Metrics) -> String {
    let mut tables: BTreeMap<&str, String> = BTreeMap::new();
    for (name, metric) in metrics {
        assert!(!metric.help.is_empty(), "{name} is not described");
        let (part, _) = PARTS.into_iter().find(|(_, start)| name.starts_with(start)).unwrap();
        *tables.entry(part).or_default() += &row(name, metric);
    }
    for (part, rows) in tables {
        let (begin, end) = (format!("<!-- {part} begin -->\n"), format!("<!-- {part} end -->"));
        let from = text.find(&begin).unwrap() + begin.len();
        let to = text.find(&end).unwrap();
        let heads = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n";
        text.replace_range(from..to, &format!("{heads}{rows}"));
    }
    text
}

#[tokio::test]
async fn the_page_of_metrics_lists_all_and_no_other() {
    let place = file("tests/pages/METRICS.md");
    let old = std::fs::read_to_string(&place).unwrap();
    let mut metrics = of_a_service().await;
    metrics.extend(of_the_libraries());
    let new = page(old.clone(), &metrics);
    if std::env::var("METRICS").is_ok_and(|value| value == "write") {
        std::fs::write(&place, new).unwrap();
        return;
    }
    let hint = "run METRICS=write cargo test -p timerd the_page_of_metrics";
    for (old, new) in old.lines().zip(new.lines()) {
        assert_eq!(old, new, "{hint}");
    }
    assert_eq!(old.len(), new.len(), "{hint}");
}

/// Checks the metrics that a query names, and the labels that it selects them by.
fn check_query(query: &str, metrics: &Metrics) -> usize {
    let (mut count, mut rest) = (0, query);
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphabetic()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let end = end.map_or(rest.len(), |end| start + end);
        let (word, after) = (&rest[start..end], &rest[end..]);
        rest = after;
        if !word.starts_with("tourbillon_") && !word.starts_with("timerd_") {
            continue;
        }
        count += 1;
        let metric = metrics.get(family(word, metrics));
        let metric = metric.unwrap_or_else(|| panic!("there is no metric {word}: {query}"));
        let is_histogram = metric.kind == "histogram";
        assert_eq!(is_histogram, family(word, metrics) != word, "not a series: {word}: {query}");
        let Some(selector) = after.strip_prefix('{') else { continue };
        for (label, value) in matchers(selector) {
            // These are of Prometheus.
            if ["job", "instance", "le"].contains(&&*label) {
                continue;
            }
            let values = metric.labels.get(&label);
            let values = values.unwrap_or_else(|| panic!("{word} has no {label}: {query}"));
            let is_known = |value: &str| values.contains(value);
            let is_open = OPEN.contains(&&*label);
            assert!(is_open || value.split('|').all(is_known), "{label}={value}: {query}");
        }
    }
    count
}

#[tokio::test]
async fn the_dashboard_and_the_alerts_name_metrics_and_labels_that_exist() {
    let metrics = of_a_service().await;
    for name in ["deploy/prometheus/alerts.yml", "deploy/grafana/timerd.json"] {
        let text = std::fs::read_to_string(file(name)).unwrap();
        // JSON escapes the quotes in queries.
        let text = text.replace("\\\"", "\"");
        assert!(text.lines().map(|line| check_query(line, &metrics)).sum::<usize>() > 20, "{name}");
    }
}

#[test]
fn a_query_with_a_wrong_name_or_label_is_noticed() {
    let metrics = read(
        "# TYPE timerd_a histogram\ntimerd_a_bucket{reason=\"x\",le=\"1\"} 0\ntimerd_a_sum 0\n\
         # TYPE timerd_b counter\ntimerd_b{store=\"s\"} 0\n",
    );
    for right in [
        "sum(timerd_a_bucket{reason=\"x\", job=\"y\"}) / timerd_b{store=~\"$store\"}",
        "rate(timerd_b[5m])",
    ] {
        assert!(check_query(right, &metrics) > 0, "{right}");
    }
    for wrong in ["timerd_c", "timerd_a", "timerd_a_bucket{reason=\"y\"}", "timerd_b{reason=\"x\"}"]
    {
        let checked = std::panic::catch_unwind(|| check_query(wrong, &metrics));
        assert!(checked.is_err(), "{wrong}");
    }
}
