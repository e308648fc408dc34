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
  clients: Object.keys(owners).map((id) => ({
    client_id: id,
    client_secret: `${id}-secret`,
    id_token_signed_response_alg: "ES256",
    grant_types: ["client_credentials"],
    redirect_uris: [],
    response_types: [],
  })),
  extraTokenClaims: (_, token) => ({ repository_owner: owners[token.clientId], groups: ["pipelines"] }),
  features: {
    devInteractions: { enabled: false },
    clientCredentials: { enabled: true },
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
provider.listen(Number(port), "127.0.0.1");
