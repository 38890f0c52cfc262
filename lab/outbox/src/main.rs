//! A timer in the transaction that is the reason for it, with sqlx. In a clone:
//!
//! ```sh
//! cargo run --manifest-path lab/outbox/Cargo.toml -- postgres://127.0.0.1/shop
//! ```
//!
//! A program that runs a worker has created the store `reminders`, as has
//! `timers --store postgres://127.0.0.1/shop#reminders migrate`.

#![forbid(unsafe_code)]

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use std::error::Error;
use std::time::Duration;
use tourbillon_durable::{Options, PostgresInsert, PostgresOptions};

const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("expected the URL of a database")?;
    let mut shop = PgConnection::connect(&url).await?;
    let orders = "CREATE TABLE IF NOT EXISTS orders \
        (number bigint PRIMARY KEY, paid boolean NOT NULL DEFAULT false)";
    sqlx::query(orders).execute(&mut shop).await?;

    // The order and its reminder are committed together.
    let mut transaction = shop.begin().await?;
    order(&mut transaction, 7).await?;
    transaction.commit().await?;

    // Neither is left.
    let mut transaction = shop.begin().await?;
    order(&mut transaction, 8).await?;
    transaction.rollback().await?;

    // A payment cancels the reminder of the second order that is committed.
    let mut transaction = shop.begin().await?;
    order(&mut transaction, 9).await?;
    transaction.commit().await?;
    let mut transaction = shop.begin().await?;
    pay(&mut transaction, 9).await?;
    transaction.commit().await?;
    shop.close().await?;
    Ok(())
}

async fn order(transaction: &mut PgConnection, number: i64) -> Result<(), Box<dyn Error>> {
    let order = sqlx::query("INSERT INTO orders (number) VALUES ($1)").bind(number);
    order.execute(&mut *transaction).await?;
    let reminders = PostgresOptions::new("reminders");
    let call = PostgresInsert::new(&reminders, &id(number), "unpaid", DAY, Options::new())?;
    // The statement has no other text than the name of the store.
    let insert = sqlx::query(AssertSqlSafe(call.sql()));
    let insert = insert.bind(call.id()).bind(call.payload()).bind(call.options());
    insert.execute(&mut *transaction).await?;
    Ok(())
}

async fn pay(transaction: &mut PgConnection, number: i64) -> Result<(), sqlx::Error> {
    let payment = sqlx::query("UPDATE orders SET paid = true WHERE number = $1").bind(number);
    payment.execute(&mut *transaction).await?;
    let cancel = sqlx::query("SELECT reminders.cancel($1)").bind(id(number));
    cancel.execute(&mut *transaction).await?;
    Ok(())
}

/// Returns the id of the reminder of an order.
fn id(number: i64) -> String {
    format!("order {number}")
}
