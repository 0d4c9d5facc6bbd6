//! What a power loss leaves of a database.

use mainstay_testkit::disk::{PowerLoss, trace};

use super::{Workspace, stored};

/// In how many of 100 images something acknowledged is missing.
fn images_with_losses(synchronous: &str) -> usize {
    let workspace = Workspace::new();
    workspace.run(&workspace.disk(), synchronous);
    let trace = trace::read(workspace.path("trace")).unwrap();
    let mut power_loss = PowerLoss::new(&trace, 42);
    let lost = |number: usize| {
        let folder = workspace.path(&format!("image-{number}"));
        let image = power_loss.image(&folder).unwrap();
        let stored = stored(&folder);
        image.acknowledged_lines().iter().any(|id| !stored.contains(&id.parse().unwrap()))
    };
    (0..100).map(lost).filter(|&lost| lost).count()
}

#[test]
fn power_loss_with_synchronous_full_loses_nothing() {
    assert_eq!(images_with_losses("full"), 0);
}

#[test]
fn power_loss_with_synchronous_normal_is_caught() {
    assert!(images_with_losses("normal") > 10);
}
