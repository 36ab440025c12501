//! What is fuzzed.

mod archive;
mod codec;
mod flash;
mod flash_file;
mod function;
mod fuse;
mod geometry;
mod image;
mod policy;
mod program;
mod protocol;
mod recording;
mod recovery;
mod session;
mod tagfs;
mod tags;
mod trace;
mod volume_file;

/// Something that takes any bytes.
pub trait Target {
    /// Its name, as the command knows it.
    fn name(&self) -> &'static str;

    /// Inputs to start from.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Words that its inputs are made of.
    fn words(&self) -> &'static [&'static [u8]] {
        &[]
    }

    /// Whether an input is a script of decisions, so that any bytes are a good one.
    fn is_script(&self) -> bool {
        true
    }

    /// Does something with an input. A panic is a finding.
    fn run(&mut self, input: &[u8]);
}

type Make = fn() -> Box<dyn Target>;

const ALL: [(&str, Make); 17] = [
    ("recovery", || Box::new(recovery::Recovery::new())),
    ("image", || Box::new(image::ImageRecords::new())),
    ("stranger", || Box::new(protocol::Protocol::new(protocol::Who::Stranger))),
    ("owner", || Box::new(protocol::Protocol::new(protocol::Who::Owner))),
    ("fuse", || Box::new(fuse::KernelRequests)),
    ("policy", || Box::new(policy::PolicyText)),
    ("program", || Box::new(program::ProgramBytes)),
    ("codec", || Box::new(codec::CodecBytes)),
    ("function", || Box::new(function::FunctionModules::new())),
    ("archive", || Box::new(archive::ArchiveBytes)),
    ("recording", || Box::new(recording::RecordingText)),
    ("flash", || Box::new(flash::FlashImages::new())),
    ("session", || Box::new(session::HostileSession::new())),
    ("tags", || Box::new(tags::TagStores::new())),
    ("tagfs", || Box::new(tagfs::TagFsRecords::new())),
    ("trace", || Box::new(trace::TraceText)),
    ("geometry", || Box::new(geometry::GeometryText)),
];

/// All targets.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// The target of this name.
pub fn by_name(name: &str) -> Option<Box<dyn Target>> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}
