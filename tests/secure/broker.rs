//! The secured broker of `scripts/kafka`: who may log in, and what each may do.
//!
//! rust-rdkafka's admin client knows neither ACLs nor users, so both are done on librdkafka's own interface.

use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::bindings as sys;
use rdkafka::bindings::rd_kafka_AclOperation_t as Operation;
use rdkafka::bindings::rd_kafka_ResourcePatternType_t as Pattern;
use rdkafka::bindings::rd_kafka_ResourceType_t as Kind;
use rdkafka::producer::{BaseProducer, Producer as _};

use crate::support::until;

pub use Operation::{
    RD_KAFKA_ACL_OPERATION_ALTER as ALTER, RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS as ALTER_CONFIGS,
    RD_KAFKA_ACL_OPERATION_CREATE as CREATE, RD_KAFKA_ACL_OPERATION_DESCRIBE as DESCRIBE,
    RD_KAFKA_ACL_OPERATION_DESCRIBE_CONFIGS as DESCRIBE_CONFIGS, RD_KAFKA_ACL_OPERATION_READ as READ,
    RD_KAFKA_ACL_OPERATION_WRITE as WRITE,
};

/// A right: an operation on a resource.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Right {
    operation: Operation,
    kind: Kind,
    pattern: Pattern,
    name: String,
}

impl Right {
    fn new(operation: Operation, kind: Kind, pattern: Pattern, name: &str) -> Self {
        Self { operation, kind, pattern, name: name.into() }
    }

    pub fn topic(operation: Operation, name: &str) -> Self {
        Self::new(operation, Kind::RD_KAFKA_RESOURCE_TOPIC, Pattern::RD_KAFKA_RESOURCE_PATTERN_LITERAL, name)
    }

    pub fn group(operation: Operation, name: &str) -> Self {
        Self::new(operation, Kind::RD_KAFKA_RESOURCE_GROUP, Pattern::RD_KAFKA_RESOURCE_PATTERN_LITERAL, name)
    }

    /// Of every transactional id that begins so.
    pub fn transactions(operation: Operation, prefix: &str) -> Self {
        let pattern = Pattern::RD_KAFKA_RESOURCE_PATTERN_PREFIXED;
        Self::new(operation, Kind::RD_KAFKA_RESOURCE_TRANSACTIONAL_ID, pattern, prefix)
    }

    /// `READ on topic NAME`, as the program is to say it.
    pub fn text(&self) -> String {
        // SAFETY: the name of an operation is a constant.
        let operation = unsafe { CStr::from_ptr(sys::rd_kafka_AclOperation_name(self.operation)) };
        let kind = match self.kind {
            Kind::RD_KAFKA_RESOURCE_TOPIC => "topic",
            Kind::RD_KAFKA_RESOURCE_GROUP => "group",
            _ => "the transactional ids",
        };
        let rest = if self.pattern == Pattern::RD_KAFKA_RESOURCE_PATTERN_PREFIXED { "*" } else { "" };
        format!("{} on {kind} {}{rest}", operation.to_str().unwrap(), self.name)
    }
}

/// The broker and its super user.
pub struct Broker {
    /// For SASL.
    pub address: String,
    /// For clients with a certificate.
    pub tls_address: String,
    home: PathBuf,
    admin: BaseProducer,
}

/// The broker, which is started unless it runs. None: the tests are to use a cluster of somebody's, whose users are
/// not ours to make.
pub fn broker() -> Option<&'static Broker> {
    static BROKER: OnceLock<Option<Broker>> = OnceLock::new();
    BROKER.get_or_init(|| std::env::var_os("KAFKA_BOOTSTRAP_SERVERS").is_none().then(Broker::up)).as_ref()
}

impl Broker {
    fn up() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let home = root.join("target/kafka-secure");
        let mut script = Command::new(root.join("scripts/kafka"));
        let up = script.arg("up").env("KAFKA_SECURE", "yes").env_remove("KAFKA_HOME_DIR").output().unwrap();
        assert!(up.status.success(), "scripts/kafka up: {}", String::from_utf8_lossy(&up.stderr));
        let address = String::from_utf8(up.stdout).unwrap().trim().to_owned();
        let tls_address = fs::read_to_string(home.join("tls/address")).unwrap().trim().to_owned();
        let admin = client(&address, &home).create().unwrap();
        Self { address, tls_address, home, admin }
    }

    /// A file of `tls/` in the broker's folder.
    pub fn tls(&self, name: &str) -> String {
        self.home.join("tls").join(name).to_str().unwrap().to_owned()
    }

    /// What the super user is a client with.
    pub fn admin(&self) -> ClientConfig {
        client(&self.address, &self.home)
    }

    /// Makes a user for SCRAM, whose password is as for PLAIN.
    pub fn add_user(&self, name: &str) {
        let (user, password) = (CString::new(name).unwrap(), password(name));
        let upsert = |mechanism| {
            let (bytes, size) = (password.as_ptr(), password.len());
            // SAFETY: librdkafka copies the texts.
            unsafe {
                sys::rd_kafka_UserScramCredentialUpsertion_new(
                    user.as_ptr(),
                    mechanism,
                    4096,
                    bytes,
                    size,
                    ptr::null(),
                    0,
                )
            }
        };
        // One request each: the broker takes no user twice.
        use sys::rd_kafka_ScramMechanism_t as Mechanism;
        for mechanism in
            [Mechanism::RD_KAFKA_SCRAM_MECHANISM_SHA_256, Mechanism::RD_KAFKA_SCRAM_MECHANISM_SHA_512]
        {
            self.alter_user(upsert(mechanism));
        }
        // The broker learns of him from its controller, a little later.
        let mut config = self.admin();
        config
            .set("sasl.mechanism", "SCRAM-SHA-512")
            .set("sasl.username", name)
            .set("sasl.password", &password);
        until(&format!("the login of {name}"), || {
            let client: BaseProducer = config.create().unwrap();
            client.client().fetch_metadata(Some("none"), Duration::from_secs(5)).ok()
        });
    }

    fn alter_user(&self, alteration: *mut sys::rd_kafka_UserScramCredentialAlteration_t) {
        let mut alterations = [alteration];
        self.ask(
            // SAFETY: everything lives until the answer is there.
            |rk, queue| unsafe {
                let all = alterations.as_mut_ptr();
                sys::rd_kafka_AlterUserScramCredentials(rk, all, 1, ptr::null(), queue);
            },
            |event| {
                // SAFETY: the event is the answer to this request, and lives until this returns.
                unsafe {
                    let result = sys::rd_kafka_event_AlterUserScramCredentials_result(event);
                    let mut count = 0;
                    let answers =
                        sys::rd_kafka_AlterUserScramCredentials_result_responses(result, &mut count);
                    for index in 0..count {
                        let answer = *answers.add(index);
                        check(sys::rd_kafka_AlterUserScramCredentials_result_response_error(answer));
                    }
                }
            },
        );
        // SAFETY: it is ours, and not used again.
        unsafe { sys::rd_kafka_UserScramCredentialAlteration_destroy(alteration) };
    }

    /// Grants all of these rights to a principal, as in `User:alice`, and waits until they are in force.
    pub fn grant(&self, principal: &str, rights: &[Right]) {
        if rights.is_empty() {
            return;
        }
        let mut bindings: Vec<_> = rights.iter().map(|right| binding(principal, right)).collect();
        self.ask(
            // SAFETY: everything lives until the answer is there.
            |rk, queue| unsafe {
                sys::rd_kafka_CreateAcls(rk, bindings.as_mut_ptr(), bindings.len(), ptr::null(), queue);
            },
            |event| {
                // SAFETY: the event is the answer to this request, and lives until this returns.
                unsafe {
                    let result = sys::rd_kafka_event_CreateAcls_result(event);
                    let mut count = 0;
                    let answers = sys::rd_kafka_CreateAcls_result_acls(result, &mut count);
                    (0..count).for_each(|index| check(sys::rd_kafka_acl_result_error(*answers.add(index))));
                }
            },
        );
        destroy(&bindings);
        self.wait(principal, |granted| rights.iter().all(|right| granted.contains(right)));
    }

    /// Takes a right away, and waits until it is gone.
    pub fn revoke(&self, principal: &str, right: &Right) {
        let mut filters = [binding(principal, right)];
        self.ask(
            // SAFETY: everything lives until the answer is there. A binding is a filter for itself.
            |rk, queue| unsafe {
                sys::rd_kafka_DeleteAcls(rk, filters.as_mut_ptr(), filters.len(), ptr::null(), queue);
            },
            |event| {
                // SAFETY: the event is the answer to this request, and lives until this returns.
                unsafe {
                    let result = sys::rd_kafka_event_DeleteAcls_result(event);
                    let mut count = 0;
                    let answers = sys::rd_kafka_DeleteAcls_result_responses(result, &mut count);
                    for index in 0..count {
                        check(sys::rd_kafka_DeleteAcls_result_response_error(*answers.add(index)));
                    }
                }
            },
        );
        destroy(&filters);
        self.wait(principal, |granted| !granted.contains(right));
    }

    /// The broker learns of a change from its controller, a little later.
    fn wait(&self, principal: &str, there: impl Fn(&HashSet<Right>) -> bool) {
        until(&format!("the rights of {principal}"), || there(&self.granted(principal)).then_some(()));
    }

    fn granted(&self, principal: &str) -> HashSet<Right> {
        let principal = CString::new(principal).unwrap();
        // SAFETY: librdkafka copies the texts; null stands for any.
        let filter = unsafe {
            sys::rd_kafka_AclBindingFilter_new(
                Kind::RD_KAFKA_RESOURCE_ANY,
                ptr::null(),
                Pattern::RD_KAFKA_RESOURCE_PATTERN_ANY,
                principal.as_ptr(),
                ptr::null(),
                Operation::RD_KAFKA_ACL_OPERATION_ANY,
                sys::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
                ptr::null_mut(),
                0,
            )
        };
        let mut granted = HashSet::new();
        self.ask(
            // SAFETY: the filter lives until the answer is there.
            |rk, queue| unsafe { sys::rd_kafka_DescribeAcls(rk, filter, ptr::null(), queue) },
            |event| {
                // SAFETY: the event is the answer to this request, and lives until this returns.
                unsafe {
                    let result = sys::rd_kafka_event_DescribeAcls_result(event);
                    let mut count = 0;
                    let acls = sys::rd_kafka_DescribeAcls_result_acls(result, &mut count);
                    for index in 0..count {
                        let acl = *acls.add(index);
                        let name = CStr::from_ptr(sys::rd_kafka_AclBinding_name(acl)).to_str().unwrap();
                        granted.insert(Right::new(
                            sys::rd_kafka_AclBinding_operation(acl),
                            sys::rd_kafka_AclBinding_restype(acl),
                            sys::rd_kafka_AclBinding_resource_pattern_type(acl),
                            name,
                        ));
                    }
                }
            },
        );
        destroy(&[filter]);
        granted
    }

    /// Sends a request to the brokers, and looks at its answer.
    fn ask(
        &self,
        send: impl FnOnce(*mut sys::rd_kafka_t, *mut sys::rd_kafka_queue_t),
        look: impl FnOnce(*mut sys::rd_kafka_event_t),
    ) {
        let rk = self.admin.client().native_ptr();
        // SAFETY: the client outlives the call, and what is made here is destroyed here.
        unsafe {
            let queue = sys::rd_kafka_queue_new(rk);
            send(rk, queue);
            let event = sys::rd_kafka_queue_poll(queue, 60_000);
            assert!(!event.is_null(), "the broker does not answer");
            let error = sys::rd_kafka_event_error(event);
            let text = sys::rd_kafka_event_error_string(event);
            assert_eq!(
                error,
                sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
                "{}",
                CStr::from_ptr(text).to_string_lossy()
            );
            look(event);
            sys::rd_kafka_event_destroy(event);
            sys::rd_kafka_queue_destroy(queue);
        }
    }
}

/// The password of a user, as `scripts/kafka-secure` gives it.
pub fn password(user: &str) -> String {
    format!("{user}-secret")
}

fn client(address: &str, home: &Path) -> ClientConfig {
    let users = fs::read_to_string(home.join("users")).unwrap();
    let (admin, password) = users.lines().next().and_then(|line| line.split_once(' ')).unwrap();
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", address).set("security.protocol", "sasl_ssl");
    config.set("ssl.ca.location", home.join("tls/ca.pem").to_str().unwrap());
    config.set("sasl.mechanism", "PLAIN").set("sasl.username", admin).set("sasl.password", password);
    config
}

fn binding(principal: &str, right: &Right) -> *mut sys::rd_kafka_AclBinding_t {
    let (principal, name) = (CString::new(principal).unwrap(), CString::new(right.name.clone()).unwrap());
    // SAFETY: librdkafka copies the texts.
    let made = unsafe {
        sys::rd_kafka_AclBinding_new(
            right.kind,
            name.as_ptr(),
            right.pattern,
            principal.as_ptr(),
            c"*".as_ptr(),
            right.operation,
            sys::rd_kafka_AclPermissionType_t::RD_KAFKA_ACL_PERMISSION_TYPE_ALLOW,
            ptr::null_mut(),
            0,
        )
    };
    assert!(!made.is_null(), "{right:?}");
    made
}

fn destroy(bindings: &[*mut sys::rd_kafka_AclBinding_t]) {
    // SAFETY: they are ours, and not used again.
    bindings.iter().for_each(|binding| unsafe { sys::rd_kafka_AclBinding_destroy(*binding) });
}

fn check(error: *const sys::rd_kafka_error_t) {
    // SAFETY: the error is null or lives as long as its event.
    unsafe {
        let fine = sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
        if !error.is_null() && sys::rd_kafka_error_code(error) != fine {
            panic!("{}", CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy());
        }
    }
}
