mod deletion;
mod files;
mod labelled;
mod saving;
mod searching;
mod strangers;
mod support;
