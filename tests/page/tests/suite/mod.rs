//! What the page promises, on each database.
