//! A macro for devices that change what some commands do and leave the others to the device that they stand before.

/// Commands of a device under test that go on to another one as they are: `inner => report read` passes on what `self.inner()`,
/// a `Result<&dyn ZonedDevice, DeviceError>`, lets pass; `shape` is what the field `inner` says of itself and has counted.
#[macro_export]
macro_rules! pass_on {
    ($($via:ident => $($command:ident)+;)+) => { $($($crate::pass_on!(@$command $via);)+)+ };
    (@report $via:ident) => {
        fn report(&self, zone: weft_core::ZoneId) -> Result<weft_device::ZoneReport, weft_device::DeviceError> {
            self.$via()?.report(zone)
        }
    };
    (@write $via:ident) => {
        fn write(
            &self,
            zone: weft_core::ZoneId,
            at: u32,
            data: &[u8],
            tag: &weft_core::Tag,
        ) -> Result<(), weft_device::DeviceError> {
            self.$via()?.write(zone, at, data, tag)
        }
    };
    (@append $via:ident) => {
        fn append(
            &self,
            zone: weft_core::ZoneId,
            data: &[u8],
            tag: &weft_core::Tag,
        ) -> Result<u32, weft_device::DeviceError> {
            self.$via()?.append(zone, data, tag)
        }
    };
    (@read $via:ident) => {
        fn read(&self, zone: weft_core::ZoneId, at: u32, out: &mut [u8]) -> Result<(), weft_device::DeviceError> {
            self.$via()?.read(zone, at, out)
        }
    };
    (@flush $via:ident) => {
        fn flush(&self) -> Result<(), weft_device::DeviceError> {
            self.$via()?.flush()
        }
    };
    (@shape $via:ident) => {
        fn info(&self) -> weft_device::ZonedInfo {
            self.inner.info()
        }
        fn counters(&self) -> weft_device::zoned::DeviceCounters {
            self.inner.counters()
        }
    };
    (@$change:ident $via:ident) => {
        fn $change(&self, zone: weft_core::ZoneId) -> Result<(), weft_device::DeviceError> {
            self.$via()?.$change(zone)
        }
    };
}
