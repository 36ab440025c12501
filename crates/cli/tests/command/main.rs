//! The weft command as a user meets it: what it prints, what it leaves behind, how it exits.

#[cfg(test)]
mod archive;
#[cfg(test)]
mod class;
#[cfg(test)]
mod compound;
#[cfg(test)]
mod copy;
#[cfg(test)]
mod drives;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod files;
#[cfg(test)]
mod flash;
mod flash_levels;
#[cfg(test)]
mod format;
#[cfg(test)]
mod fsck;
#[cfg(test)]
mod hints;
#[cfg(test)]
mod inspect;
#[cfg(test)]
mod large_values;
#[cfg(test)]
mod look;
#[cfg(test)]
mod media;
#[cfg(test)]
mod mount;
#[cfg(test)]
mod outputs;
#[cfg(test)]
mod policy;
mod quota;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod run;
#[cfg(test)]
mod salvage;
#[cfg(test)]
mod secure;
#[cfg(test)]
mod server;
#[cfg(test)]
mod snapshot;
#[cfg(test)]
mod tags;
mod tags_on_flash;
#[cfg(test)]
mod tutorial;
#[cfg(test)]
mod volume;
#[cfg(test)]
mod work;
