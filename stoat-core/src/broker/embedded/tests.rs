use super::{ClientConfig, EmbeddedBroker, EmbeddedConfig, Fsync};
use crate::broker::Broker;
use crate::broker::contract::Factory;

impl Factory for EmbeddedBroker {
    fn client(&self, transactional_id: Option<&str>, group_id: Option<&str>) -> Box<dyn Broker> {
        Box::new(self.client(ClientConfig {
            transactional_id: transactional_id.map(str::to_owned),
            group_id: group_id.map(str::to_owned),
            ..ClientConfig::default()
        }))
    }
}

mod in_memory {
    use super::*;
    crate::broker_contract!(EmbeddedBroker::open(EmbeddedConfig::memory()).expect("memory"));
}
