//! What became of the robot's description.

/// The description in use, and what came since.
#[derive(Debug, Clone, Default)]
pub struct Description {
    /// The one in use has these remarks; none before the first.
    pub in_use: Option<Vec<String>>,
    /// Why the newest one can't be used.
    pub refused: Option<String>,
}

impl Description {
    /// Another one came: its remarks, or why it can't be used (the one before stays in use then).
    pub fn came(&mut self, came: Result<&[String], String>) {
        match came {
            Ok(remarks) => (self.in_use, self.refused) = (Some(remarks.to_vec()), None),
            Err(refused) => self.refused = Some(refused),
        }
    }
}
