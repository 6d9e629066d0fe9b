//! The wire formats from outside: requests as clients send them, and answers as they read them.

mod answers;
mod hostile;
mod models;
mod rejections;
mod requests;
mod script;
