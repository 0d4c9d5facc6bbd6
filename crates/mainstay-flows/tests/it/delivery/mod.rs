//! What goes to other contexts, and comes from them.

mod publications;
