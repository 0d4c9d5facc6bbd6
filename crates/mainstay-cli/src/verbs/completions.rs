//! `mainstay completions`: what a shell needs to complete the command line.

use crate::arguments::Arguments;
use crate::{Result, output};
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print what a shell needs to complete the command line
///
/// As in: mainstay completions bash > /etc/bash_completion.d/mainstay
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "mainstay", &mut script);
        output::print(&String::from_utf8_lossy(&script))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;

    #[test]
    fn every_shell_learns_every_verb() {
        let verbs: Vec<String> = Arguments::command()
            .get_subcommands()
            .filter(|verb| !verb.is_hide_set())
            .map(|verb| verb.get_name().to_owned())
            .collect();
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Arguments::command(), "mainstay", &mut script);
            let script = String::from_utf8(script).unwrap();
            for verb in &verbs {
                assert!(script.contains(verb.as_str()), "{shell} does not know {verb}");
            }
        }
    }
}
