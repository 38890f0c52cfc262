//! `completions` and `man`.

#![forbid(unsafe_code)]

use crate::arguments::Arguments;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::io::{self, Write};

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "timers", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

pub(crate) fn man() -> Result<(), Failure> {
    Ok(Man::new(Arguments::command()).render(&mut io::stdout().lock())?)
}
