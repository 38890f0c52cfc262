//! `completions` and `man`.

#![forbid(unsafe_code)]

use crate::arguments::Arguments;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    generate(shell, &mut Arguments::command(), "timers", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}

/// Prints the manual page, or writes a page for each command into a folder.
pub(crate) fn man(folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder else {
        return Ok(Man::new(Arguments::command()).render(&mut io::stdout().lock())?);
    };
    let written = clap_mangen::generate_to(Arguments::command(), folder);
    written.map_err(|error| Failure::Usage(format!("{}: {error}", folder.display())))
}
