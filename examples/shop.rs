//! A shop's own worker: the program `turnmill` with the shop's tools in it.
//!
//! ```text
//! cargo run --example shop -- --config examples/shop.toml check --offline
//! cargo run --example shop -- --config examples/shop.toml topics apply
//! cargo run --example shop -- --config examples/shop.toml worker
//! cargo run --example shop -- --config examples/shop.toml submit --agent support --session anna --wait \
//!     "Where is order A-7?"
//! ```

use std::collections::HashMap;
use std::process::ExitCode;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use turnmill::{ToolContext, ToolError};

/// What the tools share. A real shop has a database pool here.
struct Shop {
    orders: HashMap<String, Order>,
}

#[derive(Clone, Serialize, JsonSchema)]
struct Order {
    status: &'static str,
    cents: u32,
}

/// Find an order by its id.
#[turnmill::tool(retry = 3, timeout = "10s", read_only)]
async fn lookup_order(
    ctx: &ToolContext,
    /// The number on the invoice, like `A-7`.
    order_id: String,
) -> Result<Order, ToolError> {
    find(ctx, &order_id).cloned()
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Reason {
    Damaged,
    Late,
    Unwanted,
}

/// Give the money for an order back.
// A worker has nobody to ask for an approval, so it refuses to start an agent that lists this tool. It may be
// registered beside one that does not, and a turn that picks it fails with `tool_registration_error`.
#[turnmill::tool(writes, requires_approval)]
async fn refund(ctx: &ToolContext, order_id: String, reason: Reason) -> Result<String, ToolError> {
    let Order { cents, .. } = find(ctx, &order_id)?;
    // A payment provider takes this key, and does not pay twice when a call is run twice.
    let key = ctx.idempotency_key();
    Ok(format!("refunded {cents} cents for {order_id} ({reason:?}) under the key {key}"))
}

fn find<'a>(ctx: &'a ToolContext, order_id: &str) -> Result<&'a Order, ToolError> {
    let shop: &Shop = ctx.deps()?;
    // The model reads this text: it says what to do next.
    shop.orders.get(order_id).ok_or_else(|| {
        ToolError::invalid_arguments(format!(
            "there is no order {order_id:?}; ask the customer for the number"
        ))
    })
}

fn main() -> ExitCode {
    let orders = [("A-7", "sent", 1250), ("A-8", "packed", 4900)]
        .map(|(id, status, cents)| (id.to_owned(), Order { status, cents }));
    let shop = Shop { orders: HashMap::from(orders) };
    turnmill::App::new().deps(shop).tool(LookupOrder).tool(Refund).main()
}
