//! OpenSSL, which librdkafka speaks TLS with, as far as the end of the process goes.

#![allow(unsafe_code)]

/// Keeps OpenSSL as it is when the process ends. Left to itself it is cleaned up then, under the feet of clients whose
/// threads still run: a worker that ends while a broker does not let it in would end with a crash now and then.
///
/// To be called before the first client is made.
#[cfg(feature = "tls")]
pub(super) fn outlive_the_process() {
    use std::ffi::{c_int, c_void};
    use std::sync::Once;

    /// `OPENSSL_INIT_NO_ATEXIT`
    const NO_ATEXIT: u64 = 0x0008_0000;
    static ONCE: Once = Once::new();
    unsafe extern "C" {
        fn OPENSSL_init_crypto(options: u64, settings: *const c_void) -> c_int;
    }
    // SAFETY: it may be called at any time and from any thread; no settings are the defaults.
    ONCE.call_once(|| unsafe {
        OPENSSL_init_crypto(NO_ATEXIT, std::ptr::null());
    });
}

/// There is none.
#[cfg(not(feature = "tls"))]
pub(super) fn outlive_the_process() {}
