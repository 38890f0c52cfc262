//! Configurations are read and written as text, with the defaults of the builders and their errors.

use std::time::Duration;
use tourbillon::{Builder, Config, Expired};

fn full() -> Config {
    let mut config = Config::default();
    config.resolution = Duration::from_micros(2500);
    config.shards = Some(3);
    config.capacity = Some(1_000_000);
    config.batch = Some(64);
    config.max_in_flight = Some(10_000);
    config.thread_name = String::from("timeouts");
    config
}

/// The debug output of the builders.
fn described(config: &Config) -> String {
    format!("{:?} {:?}", config.builder(), config.driver())
}

#[test]
fn a_configuration_comes_back_as_it_was_written() {
    for config in [full(), Config::default()] {
        let json = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<Config>(&json).unwrap(), config, "{json}");
        let toml = toml::to_string(&config).unwrap();
        assert_eq!(toml::from_str::<Config>(&toml).unwrap(), config, "{toml}");
    }
    let odd = Duration::new(90_061, 1_002_003);
    let mut config = Config::default();
    config.resolution = odd;
    let json = serde_json::to_string(&config).unwrap();
    assert_eq!(serde_json::from_str::<Config>(&json).unwrap().resolution, odd, "{json}");
}

#[test]
fn a_configuration_is_written_for_people() {
    let json = serde_json::to_value(full()).unwrap();
    let expected = serde_json::json!({
        "resolution": "2ms 500us",
        "shards": 3,
        "capacity": 1_000_000,
        "batch": 64,
        "max_in_flight": 10_000,
        "thread_name": "timeouts",
    });
    assert_eq!(json, expected);
    // An absent bound is omitted if a format has no word for it.
    let toml = toml::to_string(&Config::default()).unwrap();
    assert_eq!(toml, "resolution = \"1ms\"\nthread_name = \"tourbillon\"\n");
}

#[test]
fn what_is_missing_is_as_the_builders_have_it() {
    let config: Config = toml::from_str("").unwrap();
    assert_eq!(config, Config::default());
    let builders = format!("{:?} {:?}", Builder::new(), Builder::new().driver());
    assert_eq!(described(&config), builders);
    let some: Config = toml::from_str("shards = 2").unwrap();
    let mut expected = Config::default();
    expected.shards = Some(2);
    assert_eq!(some, expected);
}

#[test]
fn each_field_reaches_its_builder() {
    let wheel = Builder::new().resolution(Duration::from_micros(2500)).shards(3);
    let driver = wheel.capacity(1_000_000).driver();
    let driver = driver.batch(64).max_in_flight(10_000).thread_name("timeouts");
    assert_eq!(format!("{:?}", full().driver()), format!("{driver:?}"));
    assert_eq!(format!("{:?}", full().driver_of(full().builder())), format!("{driver:?}"));
    let wheel = Builder::new().resolution(Duration::from_micros(2500)).shards(3);
    assert_eq!(format!("{:?}", full().builder()), format!("{:?}", wheel.capacity(1_000_000)));
}

#[test]
fn what_cannot_be_read_is_refused_with_a_word_that_helps() {
    for (toml, words) in [
        ("resolutoin = \"1ms\"", &["unknown field `resolutoin`", "`resolution`", "`batch`"][..]),
        ("resolution = \"1 parsec\"", &["invalid duration \"1 parsec\"", "parsec", "ms"]),
        ("resolution = \"10\"", &["invalid duration \"10\"", "time unit needed", "10ms"]),
        ("resolution = \"-1ms\"", &["invalid duration \"-1ms\"", "expected number"]),
        ("resolution = \"\"", &["invalid duration \"\"", "empty"]),
        ("resolution = 1", &["integer `1`", "a duration with its unit, such as \"1ms\""]),
        ("shards = -1", &["integer `-1`", "usize"]),
        ("capacity = -5", &["integer `-5`", "u64"]),
        ("batch = 2.5", &["floating point `2.5`", "usize"]),
        ("max_in_flight = \"many\"", &["string \"many\"", "usize"]),
        ("thread_name = 7", &["integer `7`", "string"]),
    ] {
        let message = toml::from_str::<Config>(toml).unwrap_err().to_string();
        for word in words {
            assert!(message.contains(word), "{toml}: {word:?} is not in\n{message}");
        }
    }
}

#[test]
fn what_is_out_of_range_is_refused_by_the_builder() {
    for (json, expected) in [
        (r#"{ "resolution": "0s" }"#, "invalid resolution 0ns: must be between 1 µs and 1 h"),
        (r#"{ "resolution": "2h" }"#, "invalid resolution 7200s: must be between 1 µs and 1 h"),
        (r#"{ "shards": 257 }"#, "invalid number of shards 257: must be between 1 and 256"),
        (r#"{ "shards": 1, "capacity": 1073741824 }"#, "between 1 and 1073741568"),
        (r#"{ "batch": 0 }"#, "invalid batch size 0"),
        (r#"{ "max_in_flight": 0 }"#, "invalid bound of 0 timers in flight"),
    ] {
        let config: Config = serde_json::from_str(json).unwrap();
        let message = config.driver().spawn(|_: Expired<()>| ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{json}: {message}");
    }
    let config: Config = serde_json::from_str(r#"{ "capacity": 0 }"#).unwrap();
    let message = config.builder().build::<()>().unwrap_err().to_string();
    assert!(message.contains("invalid capacity 0: must be between 1 and"), "{message}");
}
