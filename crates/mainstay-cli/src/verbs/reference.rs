//! `mainstay reference`: writes the pages under docs/ that are generated from the program itself.

use crate::{Error, Result, reference};
use clap::Args;
use std::path::PathBuf;

/// Write the generated pages of docs/, or check that they are up to date
#[derive(Debug, Args)]
pub(crate) struct Reference {
    /// Write nothing; fail when a page differs, is missing or should not be there
    #[arg(long)]
    check: bool,
    /// The root of the repository
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    root: PathBuf,
}

impl Reference {
    pub(crate) fn run(&self) -> Result<()> {
        let difference = reference::Difference::with(&self.root)?;
        if self.check && !difference.is_empty() {
            return Err(Error::ReferenceStale(difference.files()));
        }
        for file in difference.files() {
            eprintln!("{file}");
        }
        difference.settle(&self.root)
    }
}
