//! The Identity service.

use crate::messages::*;
use crate::status::Status;
use crate::{DRIVER, Driver};

impl Driver {
    pub(crate) fn get_plugin_info(&self, _: GetPluginInfoRequest) -> Result<GetPluginInfoResponse, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(GetPluginInfoResponse { name: DRIVER.to_owned(), vendor_version, ..Default::default() })
    }

    pub(crate) fn get_plugin_capabilities(
        &self,
        _: GetPluginCapabilitiesRequest,
    ) -> Result<GetPluginCapabilitiesResponse, Status> {
        let service =
            PluginCapability { service: Some(Typed { r#type: CONTROLLER_SERVICE }), volume_expansion: None };
        let expansion =
            PluginCapability { service: None, volume_expansion: Some(Typed { r#type: EXPANSION_ONLINE }) };
        Ok(GetPluginCapabilitiesResponse { capabilities: vec![service, expansion] })
    }

    pub(crate) fn probe(&self, _: ProbeRequest) -> Result<ProbeResponse, Status> {
        Ok(ProbeResponse { ready: Some(true) })
    }
}
