//! How long a macro call takes. The figures depend on the machine, so nothing here fails:
//! `cargo test --release -p stoat-macros -- --ignored --nocapture macro_time`

use std::fmt::Write;
use std::time::Instant;

use proc_macro2::TokenStream;

use crate::{handlers, processor, topology};

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("tokens")
}

/// A processor with a handler for records, so many timers, and one state each.
fn big(n: usize) -> (TokenStream, TokenStream) {
    let (mut fields, mut methods) = (String::new(), String::new());
    for i in 0..n {
        let _ = write!(fields, "#[state] s{i}: Keyed<Session>, #[timer] t{i}: Timer,");
        let _ = write!(
            methods,
            "#[on_timer(t{i})] fn on_{i}(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {{
                 if let Some(session) = self.s{i}.take()? {{ cx.forward(session)?; }}
                 Ok(())
             }}"
        );
    }
    let methods = format!(
        "#[process] fn on_click(&mut self, click: Record<UserId, Click>, cx: &mut Context<Self>) -> Result<()> {{
             self.s0.update(Session::default, |s| s.add(&click.value))?;
             self.t0.set(click.timestamp + IDLE)
         }} {methods}"
    );
    (tokens(&format!("struct P {{ {fields} }}")), tokens(&format!("impl P {{ {methods} }}")))
}

fn chain(n: usize) -> TokenStream {
    let steps: String = (1..n).fold(String::new(), |mut s, i| {
        let _ = write!(s, "let s{i} = s{}.map_values(|v| v + 1);", i - 1);
        s
    });
    tokens(&format!("fn big(t: &mut Topology) {{ let s0 = t.source::<In>(); {steps} s{}.sink::<Out>(); }}", n - 1))
}

fn print(what: &str, mut call: impl FnMut() -> TokenStream) {
    const CALLS: u32 = 50;
    call();
    #[expect(clippy::disallowed_methods, reason = "this program measures")]
    let start = Instant::now();
    let mut size = 0;
    for _ in 0..CALLS {
        size = call().to_string().len();
    }
    let each = start.elapsed().as_secs_f64() * 1_000.0 / f64::from(CALLS);
    println!("{what}: {each:.2} ms a call (and to print the {size} bytes of it)");
}

#[test]
#[ignore = "prints figures"]
fn macro_time() {
    let (item, methods) = big(20);
    let args = tokens("input = (UserId, Click), output = Session");
    print("#[processor] with 20 states and 20 timers", || processor::expand(args.clone(), item.clone()));
    print("#[handlers] with 21 handlers", || handlers::expand(TokenStream::new(), methods.clone()));
    let topology = chain(28);
    print("#[topology] of 28 operators", || topology::expand(TokenStream::new(), topology.clone()));
}
