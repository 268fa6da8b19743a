#[stoat_core::main]
struct App;
