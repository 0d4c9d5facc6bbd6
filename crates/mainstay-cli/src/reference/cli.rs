//! docs/reference/cli.md: every verb.
//!
//! clap's own help wraps to the terminal, so a small renderer of our own makes the page the same everywhere.

use super::Page;
use crate::arguments::Arguments;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

pub(super) fn page() -> Page {
    let mut root = Arguments::command();
    root.build();
    let mut text = "# The command line\n".to_owned();
    describe(&root, &mut text);
    Page::new("docs/reference/cli.md", &text)
}

fn describe(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let _ = write!(text, "\n## `{name}`\n\n{}\n", about(command));
    let verbs: Vec<_> = shown(command).collect();
    let _ = writeln!(text, "\n```text\n{}\n```", usage(command));
    let is_root = !name.contains(' ');
    for argument in command.get_arguments().filter(|argument| is_listed(argument, is_root)) {
        let _ = write!(text, "\n- `{}`: {}", signature(argument), help(argument));
        let defaults = argument.get_default_values();
        if argument.get_action().takes_values() && !defaults.is_empty() {
            let defaults: Vec<_> = defaults.iter().map(|value| value.to_string_lossy()).collect();
            let _ = write!(text, " (default: `{}`)", defaults.join(", "));
        }
    }
    if is_root {
        text.push_str("\n\nThese options may stand before or after every verb. `--help` explains a verb; `mainstay --version` tells\nthe version.");
        if let Some(after) = command.get_after_help() {
            let _ = write!(text, "\n\n{after}");
        }
        text.push('\n');
    } else if command.get_arguments().any(|argument| is_listed(argument, false)) {
        text.push('\n');
    }
    for verb in verbs {
        describe(verb, text);
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help")
}

fn about(command: &Command) -> String {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    // The first line is a title, which has no full stop on the command line.
    let (title, rest) = about.split_once('\n').unwrap_or((&about, ""));
    format!("{}.\n{rest}", title.trim_end_matches('.')).trim_end().to_owned()
}

fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").to_owned()
}

fn is_obvious(argument: &Arg) -> bool {
    ["help", "version"].contains(&argument.get_id().as_str())
}

/// Global options are listed once, at the root.
fn is_listed(argument: &Arg, is_root: bool) -> bool {
    !argument.is_hide_set() && !is_obvious(argument) && (is_root || !argument.is_global_set())
}

fn signature(argument: &Arg) -> String {
    let long = argument.get_long().map_or(argument.get_id().to_string(), |long| format!("--{long}"));
    match argument.get_value_names() {
        Some([name, ..]) if argument.get_action().takes_values() => format!("{long} {name}"),
        _ => long,
    }
}

fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help());
    help.map(ToString::to_string).unwrap_or_default()
}
