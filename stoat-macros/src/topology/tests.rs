use quote::quote;

use super::*;

fn body(stmts: TokenStream) -> (Topology, Vec<String>) {
    let mut errors = Errors::new();
    let item: ItemFn = syn::parse2(quote! { fn sessions(t: &mut Topology) { #stmts } }).unwrap();
    let builder = signature(&item, &mut errors).unwrap();
    let topology = read::read(item, quote!(::stoat_core), &builder, &mut errors);
    (topology, errors.texts())
}

fn one(stmts: TokenStream, text: &str) {
    let (_, errors) = body(stmts);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(text), "{text} not in {errors:?}");
}

fn fine(stmts: TokenStream) -> Topology {
    let (t, errors) = body(stmts);
    assert!(errors.is_empty(), "{errors:?}");
    t
}

fn nodes(t: &Topology) -> Vec<String> {
    t.names().iter().zip(&t.nodes).map(|(name, n)| format!("{name}:{}{:?}", n.step, n.parents)).collect()
}

#[test]
fn let_names_are_the_names_of_nodes() {
    let t = fine(quote! {
        let r#in = t.source::<Clicks>();
        let closed = r#in.filter(|r| r.value > 1).process::<Sessionize>();
        closed.sink::<Sessions>();
    });
    assert_eq!(nodes(&t), ["in:source[]", "in.filter:filter[0]", "closed:process[1]", "Sessions:sink[2]"]);
    assert_eq!(t.edits.len(), 2);
}

#[test]
fn fan_out_and_merge_are_followed() {
    let t = fine(quote! {
        let clicks = t.source::<Clicks>();
        let [a, b] = clicks.fan_out();
        let both = a.map_values(|v| v).merge(b.filter(|_| true).peek(|_| ()));
        both.merge(t.source::<More>()).discard();
    });
    assert_eq!(
        nodes(&t),
        [
            "clicks:source[]",
            "clicks.fan_out:fan_out[0]",
            "a.map_values:map_values[1]",
            "b.peek:peek[1]",
            "both:merge[2, 3]",
            "More:source[]",
            "both.merge:merge[4, 5]",
            "both.merge.discard:discard[6]"
        ]
    );
}

#[test]
fn aggregations_and_explicit_names_are_followed() {
    let t = fine(quote! {
        let words = t.source::<Lines>().flat_map_values(|l| words(&l)).group_by(|_, w| w.clone());
        let counts = words.count();
        counts.to_stream().named("updates").process_with(move || my::Limit::init(3)).sink::<Counts>();
        t.source::<Other>().group_by_key().stored_as::<Be>().reduce(|a, b| a + b).named("sums").to_stream().discard();
        t.source::<Other>().process::<Log>();
    });
    assert_eq!(
        nodes(&t),
        [
            "Lines:source[]",
            "Lines.select_key:select_key[0]",
            "updates:count[1]",
            "Limit:process_with[2]",
            "Counts:sink[3]",
            "Other:source[]",
            "sums:reduce[5]",
            "sums.discard:discard[6]",
            "Other-2:source[]",
            "Log:process[8]"
        ]
    );
    assert!(matches!(t.edits.values().last(), Some(Edit::Ended(_))));
}

#[test]
fn ordinary_rust_between_the_steps_is_left_alone() {
    fine(quote! {
        const LIMIT: u32 = 3;
        let limit = if cfg!(test) { 1 } else { LIMIT };
        let names: Vec<&str> = vec!["a"];
        println!("{limit}");
        for n in &names { println!("{n}"); }
        let clicks = t.source::<Clicks>();
        clicks.process_with(move || Limit::init(limit)).filter(|clicks| clicks.value > 1).for_each(|r| drop(r));
    });
}

#[test]
fn a_stream_is_consumed_exactly_once() {
    one(quote! { let events = t.source::<E>(); events.discard(); events.discard(); }, "`events` is used twice");
    one(quote! { let events = t.source::<E>(); }, "nobody consumes `events`: end the chain with");
    one(quote! { t.source::<E>().map_values(|v| v); }, "nobody consumes the result of `.map_values(..)`");
    one(quote! { let _ = t.source::<E>(); }, "nobody consumes this stream");
    one(quote! { let n = t.source::<E>().group_by_key().count(); }, "nobody consumes `n`: go on with `.to_stream()`");
    one(
        quote! { t.source::<E>().group_by_key().count().named("n"); },
        "nobody consumes the result of `.named(..)`: go on",
    );
    one(quote! { let [a, _] = t.source::<E>().fan_out(); a.discard(); }, "each stream needs a name");
}

#[test]
fn names_are_unique() {
    one(quote! { let e = t.source::<E>(); let e = e.map_values(|v| v); e.discard(); }, "two streams are named `e`");
}

#[test]
fn an_aggregation_has_a_stable_name() {
    let text = "the aggregation `.count(..)` has no name";
    one(quote! { t.source::<E>().group_by_key().count(); }, text);
    one(
        quote! { t.source::<E>().repartition().map_values(|v| v).discard(); },
        "the boundary `.repartition(..)` has no name",
    );
    fine(quote! { t.source::<E>().repartition().named("moved").map_values(|v| v).discard(); });
    fine(quote! { let moved = t.source::<E>().repartition(); moved.discard(); });
    one(
        quote! { let s = t.source::<E>().group_by_key().count().to_stream().filter(|_, n| *n > 1); s.discard(); },
        text,
    );
    fine(quote! { t.source::<E>().group_by_key().count().to_stream().named("counts").discard(); });
    one(
        quote! {
            let a = t.source::<E>().named("x");
            let b = t.source::<F>().named("x");
            a.merge(b).discard();
        },
        "two streams are named `x`",
    );
}

#[test]
fn a_call_that_takes_streams_is_one_node() {
    let t = fine(quote! {
        let events = t.source::<E>();
        let good = my::valid(events.filter(|_, _| true), 3);
        let [a, b] = parts(good);
        let (c, d) = pair(a, b);
        report(c.merge(d).map_values(|v| v));
        let more = sources(t);
        valid(more).filter(|_, _| true).discard();
    });
    assert_eq!(
        nodes(&t),
        [
            "events:source[]",
            "events.filter:filter[0]",
            "good:fragment[1]",
            "parts:fragment[2]",
            "pair:fragment[3, 3]",
            "c.merge:merge[4, 4]",
            "c.merge.map_values:map_values[5]",
            "report:fragment[6]",
            "more:fragment[]",
            "valid:fragment[8]",
            "valid.filter:filter[9]",
            "valid.filter.discard:discard[10]"
        ]
    );
    assert_eq!(t.calls.len(), 6);
}

#[test]
fn a_body_that_does_not_parse_leaves_the_rest() {
    let out = expand(TokenStream::new(), quote! { fn sessions(t: &mut Topology) { let a = t. } }).to_string();
    assert!(out.contains("type sessions") && out.contains("let a = t .") && !out.contains("compile_error"), "{out}");
}

#[test]
fn control_flow_over_streams_is_refused() {
    for stmts in [
        quote! { let e = t.source::<E>(); if debug { e.discard(); } else { e.sink::<S>(); } },
        quote! { for _ in 0..3 { t.source::<E>().discard(); } },
        quote! { let e = t.source::<E>(); match 1 { _ => e.discard() } },
        quote! { let e = t.source::<E>(); { e.discard(); } },
        quote! { if debug { return; } t.source::<E>().discard(); },
        quote! { let n = "3".parse::<u32>()?; t.source::<E>().discard(); },
    ] {
        one(stmts, "a topology is a straight line");
    }
}

#[test]
fn a_step_under_cfg_is_refused_and_other_statements_are_not() {
    for stmts in [
        quote! { #[cfg(a)] let e = t.source::<E>(); #[cfg(not(a))] helper(1); let f = t.source::<F>(); e.merge(f).discard(); },
        quote! { #[cfg(a)] t.source::<E>().discard(); },
        quote! { let e = t.source::<E>(); #[cfg(a)] e.discard(); },
    ] {
        one(stmts, "would make the known graph wrong");
    }
    fine(
        quote! { #[cfg(a)] let n = 1; #[cfg(not(a))] let n = 2; t.source::<E>().filter(move |_, e| e.n > n).discard(); },
    );
}

#[test]
fn a_stream_that_goes_where_nobody_reads_is_refused() {
    one(quote! { let e = t.source::<E>(); (helpers[0])(e); }, "a fragment is called by its name");
    one(quote! { let e = t.source::<E>(); helper([e]); }, "takes its streams one by one");
    one(quote! { let e = t.source::<E>(); log!(e); }, "goes into a macro");
    one(quote! { let e = t.source::<E>(); let x = Some { a: e }; }, "used by its methods only");
    one(quote! { let x; let e = t.source::<E>(); x = e; }, "bound by `let`");
    one(quote! { let e = t.source::<E>(); list.push(e); }, "`e` goes into `.push(..)`, which is no step");
}

#[test]
fn the_signature_is_checked() {
    for (item, text) in [
        (quote! { fn s() {} }, "take one argument"),
        (quote! { async fn s(t: &mut Topology) {} }, "not be `async`"),
        (quote! { fn s<T>(t: &mut Topology) {} }, "no type parameters"),
        (quote! { fn s(t: &mut Topology) -> u8 { 1 } }, "return nothing"),
        (quote! { fn s(t: Topology) {} }, "`t: &mut Topology`"),
    ] {
        let mut errors = Errors::new();
        assert!(signature(&syn::parse2(item).unwrap(), &mut errors).is_none());
        assert_eq!(errors.texts().len(), 1);
        assert!(errors.texts()[0].contains(text), "{:?}", errors.texts());
    }
}

#[test]
fn a_type_that_is_given_as_a_value_is_one_error_and_the_graph_is_read_on() {
    let (mut t, errors) = body(quote! {
        let clicks = t.source(Clicks);
        let closed = clicks.process(my::Sessionize { a: 1 });
        closed.sink(Sessions);
    });
    let said = |i: usize, text: &str| assert!(errors[i].contains(text), "{errors:?}");
    said(0, "write `t.source::<Clicks>()`");
    said(1, "a processor is named by its type: write `.process::<my::Sessionize>()`");
    said(2, "a sink is named by its type: write `.sink::<Sessions>()`");
    assert_eq!(errors.len(), 3);
    assert_eq!(nodes(&t), ["clicks:source[]", "closed:process[0]", "Sessions:sink[1]"]);
    expand::rewrite(&mut t);
    let item = t.item.to_token_stream().to_string().replace(' ', "");
    assert!(item.contains("clicks.process::<my::Sessionize>()") && item.contains("sink::<Sessions>()"), "{item}");
    // A variable is no type.
    fine(quote! { t.source::<Clicks>().process_with(made).sink::<Sessions>(); });
    let (_, errors) = body(quote! { t.source::<Clicks>().sink(sessions); });
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn only_an_aggregation_needs_a_name() {
    let (_, errors) =
        body(quote! { let a = t.source::<Clicks>(); a.group_by_key().window(HOUR).count().to_stream().discard(); });
    assert!(errors.is_empty(), "the compiler knows that there is no such method: {errors:?}");
    one(
        quote! { let a = t.source::<Clicks>(); a.group_by_key().count().to_stream().discard(); },
        "the aggregation `.count(..)` has no name",
    );
}
