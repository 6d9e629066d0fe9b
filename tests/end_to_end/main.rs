//! The whole of drupe, as its users meet it: a real supervisor, a real kernel, real plugins, real SQLite, real sockets.
//! Only the language model is played, by the offline model or by a server that speaks the real wire protocol.

#![expect(clippy::print_stdout, reason = "figures are for whoever reads the output")]
#![expect(clippy::disallowed_methods, reason = "tests start the program that they test")]

#[path = "../harness/mod.rs"]
mod harness;

mod agent_template;
mod agents;
mod agreements;
mod approvals;
mod asked_calls;
mod asks_at_once;
mod attacks;
mod away;
mod channels;
mod command_line;
mod confined;
mod control;
mod crashes;
mod day;
mod doctor;
mod dumps;
mod effort;
mod encodings;
mod eval;
mod exchanged;
mod explain;
mod extensions;
mod extremes;
mod forecast;
mod full_disk;
mod gate;
mod generations;
mod handed_in;
mod handoff;
mod home;
mod hooks;
mod hostile_folders;
mod http;
mod images;
mod import;
mod inputs;
mod keys;
mod leaks;
mod lean;
mod learned;
mod limits;
mod long_conversations;
mod main_job;
mod mcp_client;
mod memory;
mod models;
mod native_builder;
mod newcomers;
mod old_journal;
mod orderly_ends;
mod outward;
mod page;
mod pdfs;
mod personas;
mod policy;
mod previews;
mod project_notes;
mod queue;
mod refused_settings;
mod reload;
mod replay;
mod resumed;
mod retention;
mod schedules;
mod schemas;
mod secrets;
mod session_search;
mod shell;
mod shipped;
mod skills;
mod spawned;
mod starts;
mod streams;
mod templates;
mod terminal;
mod tokens;
mod topics;
mod torture;
mod web;
