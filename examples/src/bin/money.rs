//! Moves money: transfers between accounts change two balances each, and the total of all balances stays what it was.
//!
//! Topic `transfers` (key: account, UTF-8; value: JSON `{"to": "..", "amount": n}`) → `balances` (key: account; value: JSON
//! `{"balance": n, "transfers": n}`) and `totals` (key: `all`; value: JSON, the sum of all balances). The balances live behind
//! a re-key, the total behind a second one. `stoat.emit.mode: on-barrier` makes each commit show both sides of each transfer,
//! so the total that is written is 0, always.
//!
//! ```mermaid
//! flowchart TD
//!   subgraph sub0["sub-topology 0"]
//!     n0(["transfers<br/>reads transfers"])
//!     n1["transfers.flat_map"]
//!     n2>"balances-repartition"]
//!   end
//!   subgraph sub1["sub-topology 1"]
//!     n3[("balances<br/>balances")]
//!     n4["balances.fan_out"]
//!     n5(["Balances<br/>writes balances"])
//!     n6[("Change<br/>known")]
//!     n7["Change.select_key"]
//!     n8>"total-repartition"]
//!   end
//!   subgraph sub2["sub-topology 2"]
//!     n9[("total<br/>total")]
//!     n10(["Totals<br/>writes totals"])
//!   end
//!   n0 --> n1
//!   n1 --> n2
//!   n2 -.-> n3
//!   n3 --> n4
//!   n4 --> n5
//!   n4 --> n6
//!   n6 --> n7
//!   n7 --> n8
//!   n8 -.-> n9
//!   n9 --> n10
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::codec::Decode;
use stoat_core::prelude::*;
use stoat_examples::{InputRecord, Story, say};

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Transfer {
    to: String,
    amount: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Account {
    balance: i64,
    transfers: u64,
}

#[source(topic = "transfers", key = String, value = Transfer, value_codec = Json)]
struct Transfers;

#[sink(topic = "balances", key = String, value = Account, value_codec = Json)]
struct Balances;

#[sink(topic = "totals", key = String, value = i64, value_codec = Json)]
struct Totals;

/// Forwards by how much a balance has changed since the account was last heard of.
#[processor(input = (String, Account), output = i64)]
struct Change {
    #[state]
    known: Keyed<i64>,
}

#[handlers]
impl Change {
    #[process]
    fn on_balance(&mut self, account: Record<String, Account>, cx: &mut Context<Self>) -> Result<()> {
        let before = self.known.get()?.copied().unwrap_or(0);
        self.known.put(account.value.balance)?;
        cx.forward(account.value.balance - before)
    }
}

#[topology]
fn money(t: &mut Topology) {
    let transfers = t.source::<Transfers>();
    let legs = transfers.flat_map(|from, t: Transfer| vec![(from, -t.amount), (t.to, t.amount)]).group_by_key();
    let balances = legs.aggregate(Account::default, |account, _key, amount| {
        account.balance += amount;
        account.transfers += 1;
    });
    let [shown, added] = balances.to_stream().fan_out();
    shown.sink::<Balances>();
    let changes = added.process::<Change>().select_key(|_account, _change| "all".to_owned()).group_by_key();
    let total = changes.reduce(|sum, change| sum + change);
    total.to_stream().sink::<Totals>();
}

/// Made up: 20,000 transfers between 100 accounts, the same each time.
fn input() -> Vec<InputRecord> {
    let mut random = 1_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let transfer = |i: i64| {
        let (from, to, amount) = (below(100), below(100), 1 + below(500));
        let value = format!("{{\"to\": \"account-{to}\", \"amount\": {amount}}}").into_bytes();
        let timestamp = Timestamp::from_millis(1_700_000_000_000 + i * 100);
        InputRecord { topic: "transfers", key: Some(format!("account-{from}").into_bytes()), value, timestamp }
    };
    (0..20_000).map(transfer).collect()
}

fn result(client: &mut BlockingClient) -> Result<()> {
    let mut accounts: BTreeMap<String, Account> = BTreeMap::new();
    client.read_all("balances", |_, r| {
        if let (Some(k), Some(Ok(account))) = (r.key, r.value.map(<Json as Decode<Account>>::decode)) {
            accounts.insert(String::from_utf8_lossy(k).into_owned(), account);
        }
    })?;
    let mut totals = Vec::new();
    client.read_all("totals", |_, r| totals.extend(r.value.map(<[u8]>::to_vec)))?;
    let wrong = totals.iter().filter(|t| t.as_slice() != b"0").count();
    let transfers: u64 = accounts.values().map(|a| a.transfers).sum::<u64>() / 2;
    say!(
        "\n{} accounts, {transfers} transfers, sum {}",
        accounts.len(),
        accounts.values().map(|a| a.balance).sum::<i64>()
    );
    say!("{} totals were written, one per commit; {wrong} of them are not 0", totals.len());
    let mut rich: Vec<_> = accounts.iter().collect();
    rich.sort_by_key(|(name, a)| (std::cmp::Reverse(a.balance), *name));
    for (name, account) in rich.iter().take(5) {
        say!("{:>10}  {name}", account.balance);
    }
    Ok(())
}

fn main() -> ExitCode {
    let app = match money::app().set("stoat.emit.mode", "on-barrier") {
        Ok(app) => app,
        Err(e) => return stoat_core::app::exit(Err(e)),
    };
    Story {
        about: "Moves money between accounts, and shows that no commit ever holds half a transfer",
        app,
        sources: &["transfers"],
        input,
        result,
    }
    .main()
}

#[cfg(test)]
mod tests {
    use super::money;

    #[test]
    fn the_picture_in_the_documentation_is_this_topology() {
        let graph = money::build().unwrap();
        assert_eq!(stoat_examples::picture(include_str!("money.rs")), graph.mermaid());
        assert_eq!(money::GRAPH.difference(&graph), None);
    }
}
