use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event))]
struct A {
    #[timer]
    late: Timer,
}

#[handlers]
impl A {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
    #[on_timer(late)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[processor(input = (UserId, Event))]
struct B {
    #[timer]
    late: Timer,
}

#[handlers]
impl B {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
    #[on_timer(late)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn events(t: &mut Topology) {
    let [a, b] = t.source::<Events>().fan_out();
    a.process::<A>();
    b.process::<B>();
}

fn main() {}
