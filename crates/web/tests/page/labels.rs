//! Labels: on rows and pages, as a filter beside others, and changes of all timers of a label.

use super::bench::{Bench, get, ids, link, post};
use super::lists::follow;
use axum::http::StatusCode;
use axum::{Extension, Router};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use timers_web::Rights;
use tourbillon_durable::{Label, Options};

/// A time in 2096, noon in UTC.
fn noon() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(4_000_017_600)
}

/// A store with timers of a shop among many others, each a second after the one before.
async fn shop() -> Bench {
    let bench = Bench::new();
    let at = |name: &'static str, count: u64| {
        (0..count).map(move |it| (format!("{name}-{it:04}"), noon() + Duration::from_secs(it)))
    };
    bench.insert(at("other", 3000)).await;
    bench.insert_labelled("shop", at("mail", 10).chain(at("order", 120))).await;
    bench.insert_labelled("bank", at("order-of-bank", 10)).await;
    bench
}

#[tokio::test]
async fn timers_of_a_label_are_paged_in_both_directions() {
    let bench = shop().await;
    let first = bench.page("timers?label=shop").await;
    assert!(first.contains("50 of 130 timers"), "{first}");
    assert_eq!(link(&first, "prev"), None);
    let (forwards, last) = follow(&bench, first, "next").await;
    assert_eq!((forwards.len(), &*forwards[0], &*forwards[129]), (130, "mail-0000", "order-0119"));
    assert_eq!(follow(&bench, last, "prev").await.0, forwards);
    let orders = bench.page("timers?label=shop&q=order").await;
    let (orders, last) = follow(&bench, orders, "next").await;
    assert_eq!(orders, forwards[10..]);
    assert_eq!(follow(&bench, last, "prev").await.0, orders);
    let none = bench.page("timers?label=sho").await;
    assert!(none.contains("Nothing found"), "{none}");
    let wrong = bench.get(&format!("timers?label={}", "x".repeat(65))).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    assert!(wrong.text.contains("label: a label has 1 to 64 bytes"), "{}", wrong.text);
}

#[tokio::test]
async fn a_label_is_combined_with_the_other_filters() {
    let bench = shop().await;
    for id in ["other-0007", "mail-0007", "order-0007", "order-of-bank-0007"] {
        bench.timers.pause_timer(id).await.unwrap();
    }
    for (filters, found) in [
        ("show=paused", &["mail-0007", "order-0007"][..]),
        ("show=paused&q=order", &["order-0007"]),
        ("show=overdue", &[]),
        ("q=order-0007", &["order-0007"]),
        ("q=order-of", &[]),
        ("q=other-0007", &[]),
        ("q=mail-0003", &["mail-0003"]),
        ("until=2096-10-02T12:00:01", &["mail-0000", "order-0000"]),
        (
            "from=2096-10-02T14:00:09&until=2096-10-02T14:00:10&zone=Europe/Berlin",
            &["mail-0009", "order-0009"],
        ),
    ] {
        let page = bench.page(&format!("timers?label=shop&{filters}")).await;
        assert_eq!(ids(&page), found, "{filters}");
    }
    // The tabs and the form keep the label.
    let page = bench.page("timers?show=paused&label=shop").await;
    for text in [r#"href="timers?label=shop""#, r#"name="label" value="shop""#] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}

#[tokio::test]
async fn a_page_of_a_label_looks_through_a_bounded_number_of_timers() {
    let bench = Bench::new();
    let many = (0..6000).map(|number| (format!("t{number:04}"), noon()));
    bench.insert_labelled("many", many).await;
    for id in ["t0000", "t5999"] {
        bench.timers.pause_timer(id).await.unwrap();
    }
    let first = bench.page("timers?label=many&show=paused").await;
    assert!(first.contains("The search for this page stopped after 5,000 timers."), "{first}");
    assert_eq!(ids(&first), ["t0000"]);
    let next = bench.page(&link(&first, "next").unwrap()).await;
    assert_eq!(ids(&next), ["t5999"]);
    assert_eq!(link(&next, "next"), None);
}

#[tokio::test]
async fn rows_and_pages_show_labels() {
    let bench = Bench::new();
    let label = Label::new("a&b <c>").unwrap();
    let options = Options::new().attempts(1).label(label).label(Label::new("shop").unwrap());
    bench.timers.insert("dies", "", UNIX_EPOCH, options.clone()).await.unwrap();
    bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    bench.timers.insert("later", "", noon(), options).await.unwrap();
    bench.insert([("plain".to_owned(), noon())]).await;
    for (page, list) in [
        ("timers", "timers"),
        ("overview", "timers"),
        ("timer?id=later", "timers"),
        ("dead", "dead"),
        ("letter?number=1", "dead"),
    ] {
        let page = bench.page(page).await;
        let link =
            format!(r#"<a class="label" href="{list}?label=a%26b+%3Cc%3E">a&amp;b &lt;c&gt;</a>"#);
        assert!(page.contains(&link), "{link} is not in {page}");
    }
    assert!(!bench.page("timer?id=plain").await.contains("Labels"));
    assert_eq!(ids(&bench.page("timers?label=a%26b+%3Cc%3E").await), ["later"]);
}

#[tokio::test]
async fn letters_are_chosen_by_label() {
    let bench = Bench::new();
    for (id, label) in [("a1", "shop"), ("b1", "bank"), ("a2", "shop"), ("b2", "bank")] {
        let options = Options::new().attempts(1).label(Label::new(label).unwrap());
        bench.timers.insert(id, "", UNIX_EPOCH, options).await.unwrap();
        bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    }
    let page = bench.page("dead?label=shop").await;
    assert_eq!(ids(&page), ["a2", "a1"]);
    assert!(page.contains("Redrive all matches…"), "{page}");
    assert_eq!(ids(&bench.page("dead?label=shop&q=a1").await), ["a1"]);
    let question = bench.post("letters?label=shop", "do=redrive-all").await;
    let title = "Redrive all dead letters that match the filter?";
    assert!(question.text.contains(title), "{}", question.text);
    let reply = bench.post("letters?label=shop", "do=redrive-all&sure=yes&end=99").await;
    assert_eq!(reply.location(), "dead?done=Redrive.2.0");
    assert_eq!(ids(&bench.page("dead").await), ["b2", "b1"]);
}

#[tokio::test]
async fn old_letters_of_a_label_are_found_behind_many_others() {
    let bench = Bench::new();
    let options = Options::new().attempts(1);
    let labelled = options.clone().label(Label::new("shop").unwrap());
    bench.timers.insert("old", "", UNIX_EPOCH, labelled).await.unwrap();
    bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    let others: Vec<String> = (0..5500).map(|number| format!("t{number}")).collect();
    let each = others.iter().map(|id| bench.timers.insert(id, "", UNIX_EPOCH, options.clone()));
    futures_util::future::join_all(each).await;
    bench.deliver(others.len(), |_| Err("410 Gone".to_owned())).await;
    let page = bench.page("dead?label=shop").await;
    assert_eq!(ids(&page), ["old"]);
    assert!(!page.contains("stopped after"), "{page}");
    let reply = bench.post("letters?label=shop", "do=redrive-all&sure=yes&end=99999").await;
    assert_eq!(reply.location(), "dead?done=Redrive.1.0");
}

#[tokio::test]
async fn all_timers_of_a_label_are_changed_after_a_question() {
    let bench = shop().await;
    let list = bench.page("timers?label=shop").await;
    for (verb, effect, count) in [
        ("Pause", "Paused timers are not called", 130),
        ("Resume", "Overdue timers are called at once", 0),
        ("Cancel", "cannot be undone", 0),
    ] {
        let path = format!("{}-label?label=shop", verb.to_lowercase());
        assert!(list.contains(&format!(r#"href="{path}">{verb} all…<"#)), "{verb}: {list}");
        let question = bench.page(&path).await;
        let title = format!("{verb} all 130 timers with the label shop?");
        assert!(question.contains(&title), "{question}");
        assert!(question.contains(effect), "{question}");
        let before = bench.timers.stats().await.unwrap();
        assert_eq!(before.timers, 3140, "a question changes nothing");
        let reply = bench.post(&path, "").await;
        assert_eq!(reply.location(), format!("timers?label=shop&done={verb}.130.0"));
        assert_eq!(bench.timers.stats().await.unwrap().paused, count, "{verb}");
        let done = bench.page(reply.location()).await;
        assert!(done.contains(" 130 timers."), "{done}");
    }
    assert_eq!(bench.timers.stats().await.unwrap().timers, 3010);
    assert_eq!(bench.get("pause-label?label=").await.status, StatusCode::BAD_REQUEST);
    // What is shown is what would be changed.
    for filter in ["q=order", "show=paused", "until=2096-10-02T12:30"] {
        let page = bench.page(&format!("timers?label=bank&{filter}")).await;
        assert!(!page.contains("Cancel all…"), "{filter}: {page}");
    }
}

#[tokio::test]
async fn a_change_of_many_timers_goes_on_after_a_question() {
    let bench = Bench::new();
    let many = (0..5500).map(|number| (format!("t{number:04}\n"), noon()));
    bench.insert_labelled("many", many).await;
    let reply = bench.post("pause-label?label=many", "").await;
    let rest = "pause-label?label=many&after=t4999%0A&done=Pause.5000.0";
    assert_eq!(reply.location(), rest);
    let question = bench.page(rest).await;
    assert!(question.contains("Pause the rest of the timers with the label many?"), "{question}");
    assert!(question.contains("Paused 5,000 timers."), "{question}");
    let action = r#"action="pause-label?label=many&amp;after=t4999%0A""#;
    assert!(question.contains(action), "{question}");
    let reply = bench.post("pause-label?label=many&after=t4999%0A", "").await;
    assert_eq!(reply.location(), "timers?label=many&done=Pause.500.0");
    assert_eq!(bench.timers.stats().await.unwrap().paused, 5500);
}

#[tokio::test]
async fn a_label_is_changed_only_by_visitors_that_may() {
    let bench = Bench::new();
    bench.insert_labelled("shop", [("order".to_owned(), noon())]).await;
    for (rights, allowed) in [
        (Rights::none(), &[][..]),
        (Rights::none().schedule(true), &[]),
        (Rights::none().operate(true), &["pause", "resume"]),
        (Rights::all(), &["pause", "resume", "cancel"]),
    ] {
        let router: Router = bench.web.router().layer(Extension(rights));
        let list = get(&router, "/timers?label=shop").await.text;
        for verb in ["pause", "resume", "cancel"] {
            let (path, may) = (format!("{verb}-label?label=shop"), allowed.contains(&verb));
            assert_eq!(list.contains(&path), may, "{rights:?}: {verb}");
            let own = [("sec-fetch-site", "same-origin")];
            let reply = post(&router, &format!("/{path}"), "", &own).await;
            let status = if may { StatusCode::SEE_OTHER } else { StatusCode::FORBIDDEN };
            assert_eq!(reply.status, status, "{rights:?}: {verb}");
        }
    }
    assert_eq!(bench.timers.get("order").await, Ok(None));
    let foreign = [("sec-fetch-site", "cross-site")];
    let reply = post(&bench.web.router(), "/cancel-label?label=shop", "", &foreign).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
}
