//! A file system in memory that knows what of it is on the disk.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
};

use anyhow::Context;

use super::{Operation, random::Random};
use content::Content;

mod content;

/// Files as the process sees them, and what is certain about each.
#[derive(Clone, Debug, Default)]
pub(super) struct Volume {
    files: Vec<Content>,
    /// As the process sees them; values are indexes of `files`.
    names: HashMap<PathBuf, usize>,
    /// On the disk when it all began.
    names_before: BTreeMap<PathBuf, usize>,
    moves: Vec<Move>,
}

/// A file came to its name (`from` is none), changed it, or lost it (`to` is none).
#[derive(Clone, Debug)]
struct Move {
    file: usize,
    from: Option<PathBuf>,
    to: Option<PathBuf>,
    certain: bool,
}

impl Volume {
    /// Everything in `folder` is on the disk.
    pub(super) fn load(folder: &Path) -> anyhow::Result<Volume> {
        let mut volume = Volume::default();
        let mut folders = vec![folder.to_owned()];
        while let Some(next) = folders.pop() {
            for entry in next.read_dir().with_context(|| next.display().to_string())? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let name = path.strip_prefix(folder)?.to_owned();
                volume.names.insert(name.clone(), volume.files.len());
                volume.names_before.insert(name, volume.files.len());
                volume.files.push(Content::on_disk(std::fs::read(&path)?));
            }
        }
        Ok(volume)
    }

    pub(super) fn apply(&mut self, operation: &Operation) -> anyhow::Result<()> {
        match operation {
            Operation::Create { path } => {
                let file = self.files.len();
                self.files.push(Content::default());
                self.rename(file, None, Some(path));
            }
            Operation::Open { path } => {
                self.file(path)?;
            }
            Operation::Write { path, offset, bytes } => self.content(path)?.write(*offset, bytes),
            Operation::Truncate { path, length } => self.content(path)?.truncate(*length),
            Operation::Sync { path } => {
                let file = self.file(path)?;
                self.files[file].sync();
                self.certain(|moved| moved.file == file);
            }
            Operation::SyncFolder { path } => {
                let inside =
                    |name: &Option<PathBuf>| name.as_ref().is_some_and(|name| name.parent() == Some(path));
                self.certain(|moved| inside(&moved.from) || inside(&moved.to));
            }
            Operation::Unlink { path } => {
                let file = self.file(path)?;
                self.rename(file, Some(path), None);
            }
            Operation::Rename { from, to } => {
                let file = self.file(from)?;
                self.rename(file, Some(from), Some(to));
            }
        }
        Ok(())
    }

    /// The files that are found afterwards.
    pub(super) fn after_power_loss(mut self, random: &mut Random) -> BTreeMap<PathBuf, Vec<u8>> {
        // Nothing beyond what is certain, everything, or something in between: each finds other mistakes.
        let eighths = [0, 0, 1, 4, 7, 8][random.below(6)];
        self.lose_moves(random, eighths);
        let mut names = self.names_before;
        for Move { file, from, to, .. } in self.moves {
            if let Some(from) = from.filter(|from| names.get(from) == Some(&file)) {
                names.remove(&from);
            }
            if let Some(to) = to {
                names.insert(to, file);
            }
        }
        let contents = self.files.into_iter().map(|content| content.after_power_loss(random, eighths));
        let contents: Vec<Vec<u8>> = contents.collect();
        names.into_iter().map(|(name, file)| (name, contents[file].clone())).collect()
    }

    /// Of each file's moves after the last certain one, the first few happened.
    fn lose_moves(&mut self, random: &mut Random, eighths: usize) {
        let mut last_certain = HashMap::new();
        for (index, moved) in self.moves.iter().enumerate().filter(|(_, moved)| moved.certain) {
            last_certain.insert(moved.file, index);
        }
        let mut lost = vec![false; self.files.len()];
        let mut index = 0;
        self.moves.retain(|moved| {
            let certain = last_certain.get(&moved.file).is_some_and(|&last| index <= last);
            index += 1;
            lost[moved.file] |= !certain && !random.chance(eighths);
            !lost[moved.file]
        });
    }

    fn rename(&mut self, file: usize, from: Option<&PathBuf>, to: Option<&PathBuf>) {
        from.map(|from| self.names.remove(from));
        to.map(|to| self.names.insert(to.clone(), file));
        self.moves.push(Move { file, from: from.cloned(), to: to.cloned(), certain: false });
    }

    fn certain(&mut self, which: impl Fn(&Move) -> bool) {
        self.moves.iter_mut().filter(|moved| which(moved)).for_each(|moved| moved.certain = true);
    }

    fn file(&self, path: &Path) -> anyhow::Result<usize> {
        self.names.get(path).copied().with_context(|| {
            format!("{} was there before the trace began; give a copy with `over`", path.display())
        })
    }

    fn content(&mut self, path: &Path) -> anyhow::Result<&mut Content> {
        let file = self.file(path)?;
        Ok(&mut self.files[file])
    }
}
