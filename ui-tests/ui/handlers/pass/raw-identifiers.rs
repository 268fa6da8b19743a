//! What leaves the program has the plain name.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct r#Type {
    #[state]
    r#type: Keyed<u64>,
    #[timer]
    r#loop: Timer,
    r#match: u64,
}

#[handlers]
impl r#Type {
    #[process]
    fn r#fn(&mut self, r#in: Record<UserId, Event>, _cx: &mut Context<Self>) -> Result<()> {
        self.r#type.put(self.r#match)?;
        self.r#loop.set(r#in.timestamp)
    }

    #[on_timer(r#loop)]
    fn r#if(&mut self, _fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(Session::default())
    }
}

#[topology]
fn r#while(t: &mut Topology) {
    let r#in = t.source::<Events>();
    let r#use = r#in.process_with(|| r#Type::init(1));
    r#use.sink::<Sessions>();
}

fn main() {
    let graph = r#while::build().expect("the topology is valid");
    assert_eq!(graph.name, "while");
    let stores: Vec<&str> = graph.stores.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(stores, ["type", "loop"]);
    let shown = format!("{graph:?}");
    assert!(!shown.contains("r#") && !shown.contains("r_"), "{shown}");
}
