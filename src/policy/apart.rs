//! `ledger.checkpoint_copy` is a file of its own: leafgate replaces it with each checkpoint, so it must be nothing else that the policy names, also where that is not
//! there yet.

use std::path::{Component, Path, PathBuf};

use super::model::Policy;
use super::read::{Context, Table};

const KEY: &str = "ledger.checkpoint_copy";

/// Notes a fault where the copy would be written over another file, or into a folder that is read.
pub(super) fn copy(context: &Context<'_>, root: &Table<'_>, policy: &Policy) {
    let Some(copy) = &policy.ledger.checkpoint_copy else {
        return;
    };
    let table = root.get("ledger").and_then(|value| value.names());
    let Some(value) = table.and_then(|table| table.get("checkpoint_copy")) else {
        return;
    };
    let copy = both(copy);
    let is = |path: &Path| both(path).iter().any(|path| copy.contains(path));
    let within = |path: &Path| {
        let folder = both(path);
        copy.iter()
            .any(|copy| folder.iter().any(|folder| copy.starts_with(folder)))
    };
    if within(&policy.ledger.dir) {
        value.fault("lies in ledger.dir, where it would be cut with the ledger; name a file elsewhere, best on another disk");
    } else if within(&policy.cards_dir) {
        value.fault("lies in cards.dir, where it would be taken for a card; name a file elsewhere");
    } else if policy.file.as_deref().is_some_and(is) {
        value.fault("is the policy file, which it would replace; name a file of its own");
    } else if is(&policy.fixtures.lock) {
        value.fault("is fixtures.lock, which it would replace; name a file of its own");
    } else {
        let paths = context.paths.borrow();
        let mut others = paths.iter().filter(|(key, _)| key != KEY);
        if let Some((key, _)) = others.find(|(_, path)| is(path)) {
            value.fault(format!(
                "is what {key} names, which it would replace; name a file of its own"
            ));
        }
    }
}

/// A path as its text says, and with the links of its folders looked through; as it is itself too, where it is there.
fn both(path: &Path) -> Vec<PathBuf> {
    let mut all = vec![plain(path)];
    let folder = match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => Path::new("/"),
    };
    if let (Ok(folder), Some(name)) = (folder.canonicalize(), path.file_name()) {
        all.push(folder.join(name));
    }
    all.extend(path.canonicalize());
    all
}

/// The path with its `.` and `..` worked out, as far as its text says. The start looks through links too.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir
                if matches!(plain.components().next_back(), Some(Component::Normal(_))) =>
            {
                plain.pop();
            }
            Component::ParentDir
            | Component::Normal(_)
            | Component::RootDir
            | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}
