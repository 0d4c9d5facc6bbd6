//! Behaviour of the binary, and of the workspace as a whole.

mod arrows;
