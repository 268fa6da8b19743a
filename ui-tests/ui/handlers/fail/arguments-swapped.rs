use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P {
    #[timer]
    idle: Timer,
}

#[handlers]
impl P {
    #[process]
    fn on_event(&mut self, cx: &mut Context<Self>, event: Record<UserId, Event>) -> Result<()> {
        Ok(())
    }
    #[on_timer(idle)]
    async fn close(&mut self, cx: &mut Context<Self>, fired: Fired<UserId>) -> Result<()> {
        Ok(())
    }
}

fn main() {}
