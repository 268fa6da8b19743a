use quote::quote;

use super::*;

fn read(item: TokenStream) -> (Handlers, Vec<String>) {
    let mut errors = Errors::new();
    let h = parse::parse(TokenStream::new(), item, &mut errors).unwrap();
    (h, errors.texts())
}

fn one(methods: TokenStream, text: &str) {
    let (_, errors) = read(quote! { impl P { #methods } });
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(text), "{text} not in {errors:?}");
}

fn process() -> TokenStream {
    quote! { #[process] fn on_event(&mut self, r: Record<K, V>, cx: &mut Context<Self>) -> Result<()> { Ok(()) } }
}

#[test]
fn handlers_are_found_and_other_attributes_stay() {
    let process = process();
    let (h, errors) = read(quote! {
        impl P {
            #[inline] #process
            #[on_timer(r#loop)] #[tracing::instrument(skip_all)]
            fn r#match(&mut self, f: Fired<K>, cx: &mut Context<Self>) -> Result<()> { Ok(()) }
            #[cfg(debug)]
            #[punctuate(every = "10s", clock = wall, over = open)]
            fn report(&mut self, cx: &mut Context<Self>) -> Result<()> { Ok(()) }
            fn helper(&self) {}
        }
    });
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(h.process.unwrap().ident, "on_event");
    assert_eq!(stoat_macro_support::plain(&h.timers[0].field), "loop");
    assert!(h.punctuators[0].wall && h.punctuators[0].over.is_some());
    assert_eq!(h.punctuators[0].every.as_secs(), 10);
    assert_eq!(h.punctuators[0].handler.cfgs.len(), 1);
    let item = h.item.to_token_stream().to_string();
    assert!(item.contains("inline") && item.contains("instrument") && item.contains("helper"), "{item}");
    assert!(!item.contains("# [process]") && !item.contains("on_timer"), "{item}");
}

#[test]
fn each_fault_of_a_signature_is_named_in_one_error() {
    one(
        quote! { #[process] fn on_event(self, r: u8) {} },
        "`on_event` must take `&mut self` first, and take 2 arguments after `&mut self`, not 1, and return `Result<()>`; expected \
         `fn on_event(&mut self, record: Record<K, V>, cx: &mut Context<Self>) -> Result<()>`",
    );
    let process = process();
    one(
        quote! { #process #[on_timer(idle)] fn close(&mut self) -> Result<()> { Ok(()) } },
        "`close` must take 2 arguments after `&mut self`, not 0; expected `fn close(&mut self, fired: Fired<K>,",
    );
    one(
        quote! { #process #[punctuate(every = "1s")] fn tick(&self, cx: &mut Context<Self>) -> Result<()> { Ok(()) } },
        "`tick` must take `&mut self` first",
    );
}

#[test]
fn each_fault_of_a_mark_is_one_error() {
    let process = process();
    let body = quote! { fn f(&mut self, r: Record<K, V>, cx: &mut Context<Self>) -> Result<()> { Ok(()) } };
    let tick = quote! { fn f(&mut self, cx: &mut Context<Self>) -> Result<()> { Ok(()) } };
    one(quote! { #[proces] #body }, "unknown handler attribute `proces`: did you mean `process`?");
    one(quote! { #process #[process] #body }, "`P` already has a `#[process]` handler, `on_event`");
    one(quote! { #process #[on_timer] #body }, "write `#[on_timer(idle)]`");
    one(quote! { #process #[on_timer(a)] #[process] #body }, "a method handles one thing");
    one(quote! { #process #[punctuate(evry = "1s")] #tick }, "did you mean `every`?");
    one(quote! { #process #[punctuate] #tick }, "how often?");
    one(quote! { #process #[punctuate(every = "0s")] #tick }, "longer than zero");
    one(quote! { #process #[punctuate(every = "1s", clock = wal)] #tick }, "did you mean `wall`?");
    one(quote! {}, "`P` has no `#[process]` handler: add `#[process] fn on_record(");
    one(quote! { fn helper(&self) {} #body }, "`P` has no `#[process]` handler: write `#[process]` above `fn f`");
}

#[test]
fn two_handlers_of_one_timer_are_an_error() {
    let process = process();
    one(
        quote! {
            #process
            #[on_timer(a)] fn f(&mut self, r: Fired<K>, cx: &mut Context<Self>) -> Result<()> { Ok(()) }
            #[on_timer(a)] fn g(&mut self, r: Fired<K>, cx: &mut Context<Self>) -> Result<()> { Ok(()) }
        },
        "timer `a` of `P` already has a handler, `f`",
    );
}

#[test]
fn arguments_in_the_wrong_order_are_shown_in_the_right_one() {
    one(
        quote! { #[process] fn on_event(&mut self, cx: &mut Context<Self>, r: Record<K, V>) -> Result<()> { Ok(()) } },
        "write `fn on_event(&mut self, r: Record<K, V>, cx: &mut Context<Self>)`",
    );
    let process = process();
    one(
        quote! {
            #process
            #[on_timer(a)] async fn f(&mut self, mut cx: &mut Context<Self>, fired: Fired<a::K>) -> Result<()> { Ok(()) }
        },
        "write `async fn f(&mut self, fired: Fired<a::K>, mut cx: &mut Context<Self>)`",
    );
    one(
        quote! { #[process] fn on_event(&mut self, r: Record<u8, Option<V>>, cx: Context<Self>) -> Result<()> { Ok(()) } },
        "`on_event` must take its context by reference, as the last argument; expected `fn on_event(&mut self, record: Record<u8, \
         Option<V>>, cx: &mut Context<Self>) -> Result<()>`",
    );
}

#[test]
fn what_the_handler_takes_is_told_where_types_can_be_compared() {
    let takes = |item| expand(TokenStream::new(), item).to_string().contains("Takes for");
    let process = process();
    assert!(takes(quote! { impl P { #process } }));
    assert!(!takes(quote! { impl<T> P<T> { #process } }), "constants of a type with parameters cannot ask");
    assert!(!takes(quote! { impl P { #[cfg(a)] #process } }), "it may not be there");
    assert!(!takes(
        quote! { impl P { #[process] fn f(&mut self, r: Alias, cx: &mut Context<Self>) -> Result<()> { Ok(()) } } }
    ));
}
