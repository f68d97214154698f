//! The stable codes of failures. Each has an entry in `docs/errors.md`.
//!
//! A code is the same in a result, an event, a dead-letter header and a log line. A code is never
//! reused for something else.

/// Declares the codes once: a constant each, and the list of all of them.
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $text;)*
        /// Every code that Turnmill itself writes, in the order of this file.
        pub const ALL: &[&str] = &[$($text),*];
    };
}

codes! {
    // A turn that cannot be run: dead letters.
    /// The record has no value.
    NULL_VALUE = "null_value";
    /// The record's value is not JSON.
    INVALID_JSON = "invalid_json";
    /// The record is JSON but not a turn: a field is missing or has the wrong type or content.
    INVALID_TURN = "invalid_turn";
    /// The turn names an agent that this worker does not have.
    UNKNOWN_AGENT = "unknown_agent";
    /// A finished turn's id came again in its session with another input.
    TURN_ID_REUSED = "turn_id_reused";
    /// A tool said that this turn must never be tried again.
    POISON = "poison";
    /// Worker after worker has died or stopped under this turn before it got any further.
    CRASH_LOOP = "crash_loop";
    /// With results exactly once: the events that would say whether the turn has ended are gone.
    JOURNAL_EXPIRED = "journal_expired";

    // A turn that ran and failed.
    /// The record at a position was made from another input.
    REPLAY_INPUT_CHANGED = "replay_input_changed";
    /// The turn would use a tool that a worker without a person must not offer.
    TOOL_REGISTRATION_ERROR = "tool_registration_error";
    /// The turn asked for more tool calls than its agent allows.
    TOOL_CALL_LIMIT = "tool_call_limit";
    /// The turn used up its model calls.
    MODEL_CALL_LIMIT = "model_call_limit";
    /// The turn used up its tokens.
    TOKEN_LIMIT = "token_limit";
    /// The turn's next calls would cost more than it may.
    COST_LIMIT = "cost_limit";
    /// The turn ran for as long as it may.
    RUN_TIME_LIMIT = "run_time_limit";
    /// The agent's code failed.
    AGENT_ERROR = "agent_error";
    /// The agent's code panicked.
    AGENT_PANICKED = "agent_panicked";
    /// A step of an agent's own returned an error.
    STEP_ERROR = "step_error";
    /// Two steps of an agent's own have one id.
    DUPLICATE_STEP_ID = "duplicate_step_id";
    /// The code of a step has begun a step.
    NESTED_STEP = "nested_step";
    /// Two calls run together under one id.
    CONCURRENT_CALL_ID = "concurrent_call_id";
    /// A tool failed in a way that no retry can mend.
    TOOL_FATAL = "tool_fatal";
    /// The model failed.
    MODEL_ERROR = "model_error";
    /// The model's provider refused the key.
    MODEL_AUTHENTICATION = "model_authentication";
    /// The model's provider does not take the request.
    MODEL_REQUEST = "model_request";
    /// The model's provider is asked too often, or what was paid for is used up.
    MODEL_RATE_LIMIT = "model_rate_limit";
    /// The model's provider cannot answer now.
    MODEL_OVERLOADED = "model_overloaded";
    /// The model's provider was not reached, or the connection broke.
    MODEL_UNREACHABLE = "model_unreachable";
    /// What the model's provider sent is no whole reply.
    MODEL_STREAM = "model_stream";
    /// The model had not replied when its time was over.
    MODEL_TIMEOUT = "model_timeout";
    /// The model or its provider refused to answer.
    CONTENT_FILTER = "content_filter";
    /// The transcript is longer than the model takes.
    CONTEXT_LENGTH = "context_length";
    /// The scripted model was asked for more replies than its script has.
    SCRIPT_EXHAUSTED = "script_exhausted";
    /// The scripted model's script is missing or is not a script.
    INVALID_SCRIPT = "invalid_script";
    /// A record of the turn is larger than the broker takes.
    RECORD_TOO_LARGE = "record_too_large";
    /// The turn's time was over before it ended.
    DEADLINE_EXCEEDED = "deadline_exceeded";
    /// The turn's agent is turned off.
    AGENT_DISABLED = "agent_disabled";
    /// Somebody cancelled the turn.
    CANCELLED = "cancelled";

    // A call that failed; the model reads the text and the turn goes on.
    /// The model called a tool that was not offered.
    UNKNOWN_TOOL = "unknown_tool";
    /// The call's arguments are not a JSON object, or fail the tool's schema.
    INVALID_ARGUMENTS = "invalid_arguments";
    /// The reply was cut off at its token limit, so none of its calls ran.
    REPLY_TRUNCATED = "reply_truncated";
    /// The call stands inside too many others.
    CALL_DEPTH_LIMIT = "call_depth_limit";
    /// The tool is turned off.
    TOOL_DISABLED = "tool_disabled";
    /// The tool returned an error.
    TOOL_ERROR = "tool_error";
    /// The tool did not answer within its timeout.
    TOOL_TIMEOUT = "tool_timeout";
    /// The tool panicked.
    TOOL_PANICKED = "tool_panicked";
    /// The call had started when its worker died, and its tool asks not to run again then.
    UNKNOWN_OUTCOME = "unknown_outcome";
    /// The tool's result cannot be written as JSON.
    INVALID_RESULT = "invalid_result";
    /// The tool's result is larger than a record may be.
    RESULT_TOO_LARGE = "result_too_large";
}
