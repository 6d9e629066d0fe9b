//! The tools: those of servers one by one or by search, resources and prompts. Skills are in `load_skill.rs`.

use drupe_extension_api::{ScopeKind, prelude::*};
use rmcp::model::{
    CallToolRequestParams, GetPromptRequestParams, JsonObject, PaginatedRequestParams, Prompt,
    ReadResourceRequestParams,
};
use serde_json::{Value, json};

use crate::{
    Mcp,
    catalog::{Catalog, ServerTool, longest},
    content, names,
    search::{Findable, find},
};

/// Pages of a list of resources or prompts.
const PAGES: usize = 16;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Find {
    /// What the tool is to do, in a few words.
    query: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CallOne {
    /// The name of the tool, as mcp_find gave it.
    tool: String,
    /// Its arguments, by the schema that mcp_find gave.
    #[serde(default)]
    arguments: JsonObject,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Resources {
    /// The name of the server.
    server: String,
    /// The address of the resource to read. Without it, those that there are are listed.
    #[serde(default)]
    uri: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Prompts {
    /// The name of the server.
    server: String,
    /// The name of the prompt to get. Without it, those that there are are listed.
    #[serde(default)]
    name: Option<String>,
    /// Its arguments, which are texts.
    #[serde(default)]
    arguments: JsonObject,
}

impl ToolProvider for Mcp {
    fn tools(&self) -> Vec<Tool<Self>> {
        let offered = self.servers.offer.now().clone();
        let mut tools: Vec<Tool<Self>> =
            offered.tools.into_iter().map(|spec| Tool::dynamic(spec, Mcp::forward)).collect();
        if offered.search {
            tools.push(
                Tool::new(
                    names::FIND,
                    "Finds tools of MCP servers by what they do; gives their names, descriptions and schemas. mcp_call \
                     calls one.",
                    Mcp::find,
                )
                .read_only()
                .reads_untrusted()
                .item(ItemKind::McpToolCall),
            );
            let call =
                Tool::new(names::CALL, "Calls a tool of an MCP server that mcp_find found.", Mcp::call_found);
            tools.push(self.careful(call).once().approval_scope("tool", ScopeKind::Exact, &[]));
        }
        let catalog = self.catalog();
        if offered.resources {
            let text = format!(
                "Lists the resources of an MCP server, or reads one. Servers that have any: {}.",
                catalog.resources.join(", ")
            );
            let tool = Tool::new(names::RESOURCES, text, Mcp::resources);
            tools.push(self.careful(tool).idempotent().approval_scope("server", ScopeKind::Exact, &[]));
        }
        if offered.prompts {
            let text = format!(
                "Lists the prompts of an MCP server, or gets one. Servers that have any: {}.",
                catalog.prompts.join(", ")
            );
            let tool = Tool::new(names::PROMPTS, text, Mcp::prompts);
            tools.push(self.careful(tool).idempotent().approval_scope("server", ScopeKind::Exact, &[]));
        }
        tools
    }
}

impl Mcp {
    /// What is asked of a server goes out and is asked about, and what it gives is of strangers.
    fn careful(&self, tool: Tool<Self>) -> Tool<Self> {
        let settings = self.servers.settings();
        let longest = settings.servers.values().map(|server| longest(&settings, server)).max();
        tool.needs_approval()
            .outward()
            .reads_untrusted()
            .item(ItemKind::McpToolCall)
            .timeout(std::time::Duration::from_millis(longest.unwrap_or_default()))
    }

    fn catalog(&self) -> Catalog {
        Catalog::new(&self.servers.settings(), &self.servers.pins.state())
    }

    /// A tool of a server that is offered by itself.
    async fn forward(&self, arguments: Value, call: Call) -> Result<String, Fault> {
        let name = call.tool().map(ToString::to_string).unwrap_or_default();
        if let Some(server) = self.catalog().skills.get(&name) {
            return self.load_skill(server, arguments, &call).await;
        }
        let Value::Object(arguments) = arguments else {
            return Err(Fault::invalid("the parameters are no object"));
        };
        self.call_tool(&name, arguments, &call).await
    }

    async fn call_found(&self, input: CallOne, call: Call) -> Result<String, Fault> {
        // Whoever may call this need not be the agent whose server it is.
        if let Some(target) = self.catalog().tools.get(&input.tool) {
            self.servers.shared(&target.server)?;
        }
        self.call_tool(&input.tool, input.arguments, &call).await
    }

    async fn call_tool(&self, offered: &str, arguments: JsonObject, call: &Call) -> Result<String, Fault> {
        let servers = &self.servers;
        let ServerTool { server: name, tool } = self.catalog().tools.remove(offered).ok_or_else(|| {
            Fault::not_found(format!("no MCP server has the tool `{offered}`, or it waits for the operator"))
        })?;
        let server = servers.used(&name)?;
        let held = servers.connected(&name, Some(&call.session)).await?;
        // What it says of itself now may not be what it said when this was offered.
        servers.check(&name, &server, &tool)?;
        let read_only = server.tools.read_only(&tool);
        let _during = held.1.asking.during(call);
        let params = CallToolRequestParams::new(tool).with_arguments(arguments);
        let result = servers.ask(&name, &held, !read_only, held.1.service.call_tool(params)).await?;
        content::pictures(&result).for_each(|picture| call.show_image(picture));
        content::of_call(result, servers.settings().output(), &|text| held.1.hidden(text))
    }

    async fn find(&self, input: Find, _: Call) -> Result<String, Fault> {
        let catalog = self.catalog();
        let state = self.servers.pins.state();
        let definition = |target: &ServerTool| state.servers.get(&target.server)?.agreed.get(&target.tool);
        let settings = self.servers.settings();
        let entries: Vec<Findable<'_>> = catalog
            .shared(&settings)
            .filter_map(|(name, target)| Some(Findable { name, definition: definition(target)? }))
            .collect();
        let told = |entry: &&Findable<'_>| {
            let definition = entry.definition;
            json!({"tool": entry.name, "description": definition.description, "arguments": definition.schema})
                .to_string()
        };
        let found: Vec<String> = find(&entries, &input.query).iter().map(told).collect();
        Ok(match found.as_slice() {
            [] => format!("None of {} tools fits these words.", entries.len()),
            found => found.join("\n"),
        })
    }

    async fn resources(&self, input: Resources, call: Call) -> Result<String, Fault> {
        let servers = &self.servers;
        let name = input.server;
        servers.shared(&name)?;
        let held = servers.connected(&name, Some(&call.session)).await?;
        let service = &held.1.service;
        let most = servers.settings().output();
        let Some(uri) = input.uri else {
            let (mut lines, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES {
                let page = Some(PaginatedRequestParams::default().with_cursor(cursor));
                let page = servers.ask(&name, &held, false, service.list_resources(page)).await?;
                lines.extend(page.resources.iter().map(content::line));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            // A server without templates may not know the question.
            if let Ok(page) = servers.ask(&name, &held, false, service.list_resource_templates(None)).await {
                let line =
                    |uri: &str, what: &str| format!("{uri} (a template: fill in what is in braces){what}");
                lines.extend(page.resource_templates.iter().map(|template| {
                    let what =
                        template.description.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
                    line(&template.uri_template, &what)
                }));
            }
            return Ok(listed(held.1.all_hidden(lines), "resources", most));
        };
        let params = ReadResourceRequestParams::new(uri);
        let result = servers.ask(&name, &held, false, service.read_resource(params)).await?;
        Ok(content::of_resource(&result, most, &|text| held.1.hidden(text)))
    }

    async fn prompts(&self, input: Prompts, call: Call) -> Result<String, Fault> {
        let servers = &self.servers;
        let name = input.server;
        servers.shared(&name)?;
        let held = servers.connected(&name, Some(&call.session)).await?;
        let service = &held.1.service;
        let most = servers.settings().output();
        let Some(prompt) = input.name else {
            let (mut lines, mut cursor) = (Vec::new(), None);
            for _ in 0..PAGES {
                let page = Some(PaginatedRequestParams::default().with_cursor(cursor));
                let page = servers.ask(&name, &held, false, service.list_prompts(page)).await?;
                lines.extend(page.prompts.iter().map(line_of_prompt));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            return Ok(listed(held.1.all_hidden(lines), "prompts", most));
        };
        let params = GetPromptRequestParams::new(prompt).with_arguments(input.arguments);
        let result = servers.ask(&name, &held, false, service.get_prompt(params)).await?;
        Ok(content::of_prompt(&result, most, &|text| held.1.hidden(text)))
    }
}

fn listed(lines: Vec<String>, what: &str, most: usize) -> String {
    match lines.as_slice() {
        [] => format!("The server has no {what}."),
        lines => content::cut(lines.join("\n"), most),
    }
}

fn line_of_prompt(prompt: &Prompt) -> String {
    let arguments = prompt.arguments.iter().flatten().map(|argument| match argument.required {
        Some(true) => format!("{} (required)", argument.name),
        _ => argument.name.clone(),
    });
    let arguments: Vec<String> = arguments.collect();
    let what = prompt.description.as_ref().map(|what| format!(": {what}")).unwrap_or_default();
    format!("{}({}){what}", prompt.name, arguments.join(", "))
}
