//! Dead letters: newest first, one, some, and all of a filter.

use super::bench::{Bench, ids, link};
use axum::http::StatusCode;
use std::time::SystemTime;
use tourbillon_durable::Options;

const LETTERS: usize = 60;

/// A store with dead letters `d00` to `d59`, which died in this order.
async fn bench() -> Bench {
    let bench = Bench::new();
    for number in 0..LETTERS {
        let (id, options) = (format!("d{number:02}"), Options::new().attempts(1));
        bench.timers.insert(&id, "payload", SystemTime::UNIX_EPOCH, options).await.unwrap();
        bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    }
    bench
}

/// Returns the numbers of the letters on a page.
fn numbers(page: &str) -> Vec<&str> {
    let boxes = page.split(r#"name="number" value=""#).skip(1);
    boxes.map(|letter| letter.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn letters_are_read_and_redriven() {
    let bench = bench().await;
    let first = bench.page("dead").await;
    assert_eq!((ids(&first)[0], ids(&first).len()), ("d59", 50));
    assert!(first.contains("50 of 60 dead letters") && first.contains("410 Gone"), "{first}");
    let last = bench.page(&link(&first, "next").unwrap()).await;
    assert_eq!((ids(&last)[9], ids(&last).len()), ("d00", 10));
    assert_eq!(link(&last, "next"), None);
    assert_eq!(ids(&bench.page(&link(&last, "prev").unwrap()).await), ids(&first));
    assert_eq!(ids(&bench.page("dead?q=d0").await).len(), 10);
    assert!(bench.page("dead?until=1971-01-01T00:00").await.contains("Nothing found"));

    // One, from its page.
    let number = numbers(&first)[0];
    let page = bench.page(&format!("letter?number={number}")).await;
    for text in ["All attempts failed", "410 Gone", "payload", "Last 1 run: 1 failed"] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
    let reply = bench.post("letters", &format!("do=redrive&number={number}")).await;
    assert_eq!(reply.location(), "timer?id=d59&done=redriven");
    assert!(bench.page(reply.location()).await.contains("The dead letter was redriven."));
    assert!(bench.timers.get("d59").await.unwrap().is_some());
    let gone = bench.get(&format!("letter?number={number}")).await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);

    // Some, of which one has a successor.
    bench.timers.insert("d57", "", SystemTime::UNIX_EPOCH, Options::new()).await.unwrap();
    let fields = format!("do=redrive&number={}&number={}", numbers(&first)[1], numbers(&first)[2]);
    let reply = bench.post("letters", &fields).await;
    let page = bench.page(reply.location()).await;
    let report = "Redrove 1 dead letter. 1 dead letter could not be redriven, because a timer with";
    assert!(page.contains(report), "{page}");
    assert_eq!(ids(&page)[0], "d57");
    let none = bench.post("letters", "do=redrive").await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST);
    assert!(none.text.contains("no dead letter is selected"), "{}", none.text);
}

#[tokio::test]
async fn letters_are_deleted_after_a_question() {
    let bench = bench().await;
    let first = bench.page("dead").await;
    let fields = format!("do=delete&number={}&number={}", numbers(&first)[0], numbers(&first)[1]);
    let question = bench.post("letters", &fields).await;
    assert!(question.text.contains("Delete 2 dead letters?"), "{}", question.text);
    assert_eq!(bench.timers.dead_len().await, Ok(60));
    let reply = bench.post("letters", &format!("{fields}&sure=yes")).await;
    assert!(bench.page(reply.location()).await.contains("Deleted 2 dead letters."));
    assert_eq!(bench.timers.dead_len().await, Ok(58));

    // All of a filter, without a letter that comes after the question.
    let question = bench.post("letters?q=d0", "do=delete-all").await;
    let title = "Delete all dead letters that match the filter?";
    assert!(question.text.contains(title), "{}", question.text);
    let end = question.text.split(r#"name="end" value=""#).nth(1).unwrap();
    let end = end.split('"').next().unwrap();
    let late = Options::new().attempts(1);
    bench.timers.insert("d0-late", "", SystemTime::UNIX_EPOCH, late).await.unwrap();
    bench.deliver(1, |_| Err("410 Gone".to_owned())).await;
    let fields = format!("do=delete-all&sure=yes&end={end}");
    let reply = bench.post("letters?q=d0", &fields).await;
    assert!(bench.page(reply.location()).await.contains("Deleted 10 dead letters."));
    assert_eq!(ids(&bench.page("dead?q=d0").await), ["d0-late"]);

    let question = bench.post("letters", "do=redrive-all").await;
    assert!(question.text.contains("Redrive all 49 dead letters?"), "{}", question.text);
    let reply = bench.post("letters", "do=redrive-all&sure=yes&end=18446744073709551615").await;
    assert!(bench.page(reply.location()).await.contains("Redrove 49 dead letters."));
    assert_eq!(bench.timers.dead_len().await, Ok(0));
}

#[tokio::test]
async fn a_change_of_many_letters_goes_on_after_a_question() {
    const MANY: usize = 5100;
    let bench = Bench::new();
    let options = Options::new().attempts(1);
    let ids: Vec<String> = (0..MANY).map(|number| format!("d{number}")).collect();
    let each =
        ids.iter().map(|id| bench.timers.insert(id, "", SystemTime::UNIX_EPOCH, options.clone()));
    futures_util::future::join_all(each).await;
    bench.deliver(MANY, |_| Err("410 Gone".to_owned())).await;
    let reply = bench.post("letters?q=d", "do=delete-all&sure=yes&end=99999").await;
    let rest = reply.location().to_owned();
    assert!(rest.ends_with("&done=Delete.5000.0"), "hosts count the changes by it: {rest}");
    let question = bench.page(&rest).await;
    for text in ["Continue?", "Deleted 5,000 dead letters.", r#"action="letters?q=d""#] {
        assert!(question.contains(text), "{text} is not in {question}");
    }
    let end = question.split(r#"name="end" value=""#).nth(1).unwrap().split('"').next().unwrap();
    let reply = bench.post("letters?q=d", &format!("do=delete-all&sure=yes&end={end}")).await;
    assert_eq!(reply.location(), "dead?done=Delete.100.0");
    assert_eq!(bench.timers.dead_len().await, Ok(0));
}
