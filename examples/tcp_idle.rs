//! An echo server on plain tokio TCP that closes connections after five silent seconds. It serves
//! until its standard input ends (ctrl-D at a terminal).
//!
//! Run `cargo run -p tourbillon-integrations --example tcp_idle`, and then `nc 127.0.0.1 7000`.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, sink, stdin};
use tokio::net::{TcpListener, TcpStream};
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon::io::TimeoutStream;

const IDLE: Duration = Duration::from_secs(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let timer = Timer::spawn(Builder::new().driver())?;
    let listener = TcpListener::bind("127.0.0.1:7000").await?;
    println!("listening on {}; ends with standard input", listener.local_addr()?);
    tokio::spawn(serve(listener, timer));
    copy(&mut stdin(), &mut sink()).await?;
    Ok(())
}

async fn serve(listener: TcpListener, timer: Timer) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => return println!("accepts no more connections: {error}"),
        };
        let timer = timer.clone(); // one for each connection
        tokio::spawn(async move {
            match echo(stream, &timer).await {
                Ok(()) => println!("{peer} has closed"),
                Err(error) => println!("{peer}: {error}"),
            }
        });
    }
}

async fn echo(stream: TcpStream, timer: &Timer) -> io::Result<()> {
    let mut stream = TimeoutStream::new(timer, stream).with_idle_timeout(IDLE);
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..count]).await?;
    }
}
