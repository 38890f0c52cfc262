-- A timer in the transaction that is the reason for it: psql -d shop -f outbox.sql
--
-- A program that uses the crate has created the store `reminders`, as has
-- `timers --store postgres://127.0.0.1/shop#reminders migrate`.
\set ON_ERROR_STOP on

CREATE TABLE IF NOT EXISTS orders (number bigint PRIMARY KEY, paid boolean NOT NULL DEFAULT false);

-- The order and its reminder are committed together.
BEGIN;
INSERT INTO orders (number) VALUES (7);
SELECT reminders.insert('order 7', 'unpaid', delay => '1 day');
COMMIT;

-- Neither is left.
BEGIN;
INSERT INTO orders (number) VALUES (8);
SELECT reminders.insert('order 8', payload_json => jsonb_build_object('order', 8), delay => '1 day');
ROLLBACK;

-- A payment cancels the reminder of the second order that is committed.
BEGIN;
INSERT INTO orders (number) VALUES (9);
SELECT reminders.insert('order 9', 'unpaid', delay => '1 day');
COMMIT;
BEGIN;
UPDATE orders SET paid = true WHERE number = 9;
SELECT reminders.cancel('order 9');
COMMIT;
