//! The theoretical write amplification under uniformly random page writes.
//!
//! `alpha` is the room that data can spread over, divided by the data: (pages of all blocks - pages of the free blocks
//! held in reserve - empty pages of open blocks) / logical pages ([`alpha`](super::MapperSetup::alpha)). An FTL that
//! counts its reserve as room seems better than it is.

/// Cleaning in the order of writing: alpha / (alpha + W0(-alpha e^-alpha)). Greedy cleaning approaches it from below as
/// blocks get larger.
///
/// Sources: Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012; Xiang and Kurkoski, "An improved
/// analytic expression for write amplification in NAND flash", 2012 (arXiv 1110.4245).
pub fn fifo(alpha: f64) -> f64 {
    alpha / (alpha + lambert_w0(-alpha * (-alpha).exp()))
}

/// Cleaning of a block at random: alpha / (alpha - 1).
pub fn random(alpha: f64) -> f64 {
    alpha / (alpha - 1.0)
}

/// The principal branch of Lambert's W for -1/e <= x < 0, by Halley's iteration: `w e^w = x`, `w >= -1`.
fn lambert_w0(x: f64) -> f64 {
    // Near the branch point the series in p = sqrt(2(ex + 1)) is the better start.
    let p = (2.0 * (std::f64::consts::E * x + 1.0)).max(0.0).sqrt();
    let mut w = if p < 0.5 { -1.0 + p - p * p / 3.0 } else { x };
    for _ in 0..50 {
        let e = w.exp();
        let f = w * e - x;
        let step = f / (e * (w + 1.0) - (w + 2.0) * f / (2.0 * w + 2.0));
        if !step.is_finite() {
            break;
        }
        w -= step;
        if step.abs() < 1e-14 {
            break;
        }
    }
    w
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formulas_give_the_published_values() {
        // Xiang and Kurkoski give 2.36 for 30 % over-provisioning.
        assert!((fifo(1.3) - 2.36).abs() < 0.01, "{}", fifo(1.3));
        for (alpha, wanted) in [(1.07, 7.817), (1.125, 4.680), (1.25, 2.693), (1.28, 2.481), (1.5, 1.716)] {
            assert!((fifo(alpha) - wanted).abs() < 0.01, "{alpha}: {}", fifo(alpha));
        }
        assert!((random(1.125) - 9.0).abs() < 1e-9);
        for alpha in [1.001f64, 1.01, 2.0, 5.0] {
            let w = lambert_w0(-alpha * (-alpha).exp());
            assert!((w * w.exp() + alpha * (-alpha).exp()).abs() < 1e-12 && w > -1.0, "{alpha}");
        }
    }
}
