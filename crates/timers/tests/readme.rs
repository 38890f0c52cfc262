//! The commands of the README do what it shows.

#[test]
fn the_readme_shows_what_the_commands_print() {
    let folder = std::env::temp_dir().join(format!("timers-readme-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder is made");
    let store = folder.join("timers.db");
    trycmd::TestCases::new().env("TIMERS_STORE", store.to_string_lossy()).case("README.md").run();
    std::fs::remove_dir_all(&folder).expect("it is there");
}
