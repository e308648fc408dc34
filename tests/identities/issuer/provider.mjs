// An OpenID provider that gives access tokens to a few clients: node provider.mjs <port> <file with its private keys>
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [port, keys, modules] = process.argv.slice(2);
const { default: Provider } = await import(pathToFileURL(resolve(modules, "oidc-provider/lib/index.js")));

// As a CI issuer's tokens name the owner of the code.
const owners = { acme: "acme", mallory: "mallory", nobody: undefined };

const provider = new Provider(`http://127.0.0.1:${port}`, {
  jwks: JSON.parse(readFileSync(keys, "utf8")),
  clients: [
    ...Object.keys(owners).map((id) => ({
      client_id: id,
      client_secret: `${id}-secret`,
      id_token_signed_response_alg: "ES256",
      grant_types: ["client_credentials"],
      redirect_uris: [],
      response_types: [],
    })),
    ...(process.env.REDIRECT_URI ? [{
      client_id: "console",
      token_endpoint_auth_method: "none",
      id_token_signed_response_alg: "ES256",
      grant_types: ["authorization_code"],
      response_types: ["code"],
      redirect_uris: [process.env.REDIRECT_URI],
    }] : []),
    {
      client_id: "people",
      token_endpoint_auth_method: "none",
      id_token_signed_response_alg: "ES256",
      grant_types: ["urn:ietf:params:oauth:grant-type:device_code", "refresh_token"],
      redirect_uris: [],
      response_types: [],
    },
  ],
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
  extraTokenClaims: (_, token) => ({
    repository_owner: token.clientId === "people" ? "acme" : owners[token.clientId], groups: ["pipelines"],
  }),
  interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
    deviceFlow: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        scope: "api",
        audience: resource.replace("urn:", ""),
        accessTokenFormat: "jwt",
        accessTokenTTL: 300,
        jwt: { sign: { alg: "ES256" } },
      }),
    },
  },
});

// In the place of the page on which a person confirms a login: /confirm?user_code=... confirms it as olga, with
// &refused=1 it refuses it.
provider.use(async (context, next) => {
  if (context.path !== "/confirm") return next();
  const code = await provider.DeviceCode.findByUserCode(context.query.user_code.replace("-", ""));
  if (context.query.refused) {
    Object.assign(code, { error: "access_denied", errorDescription: "End-User aborted interaction" });
  } else {
    const { resource, scope } = code.params;
    const grant = new provider.Grant({ accountId: "olga", clientId: code.clientId });
    grant.addOIDCScope(scope);
    grant.addResourceScope(resource, "api");
    const now = Math.floor(Date.now() / 1000);
    Object.assign(code, { accountId: "olga", grantId: await grant.save(), scope, resource, authTime: now });
  }
  await code.save();
  context.status = 204;
});

// In the place of the pages on which a person logs in and consents: olga does both at once.
provider.use(async (context, next) => {
  if (!context.path.startsWith("/interaction/")) return next();
  const { params, prompt } = await provider.interactionDetails(context.req, context.res);
  const grant = new provider.Grant({ accountId: "olga", clientId: params.client_id });
  grant.addOIDCScope(params.scope);
  if (params.resource) grant.addResourceScope(params.resource, "api");
  const result = prompt.name === "login"
    ? { login: { accountId: "olga" } }
    : { consent: { grantId: await grant.save() } };
  context.respond = false;
  await provider.interactionFinished(context.req, context.res, result, { mergeWithLastSubmission: true });
});
provider.listen(Number(port), "127.0.0.1");
