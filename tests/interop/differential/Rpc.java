import com.fasterxml.jackson.core.json.JsonReadFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.message.AlterClientQuotasRequestDataJsonConverter;
import org.apache.kafka.common.message.AlterClientQuotasResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeClientQuotasRequestDataJsonConverter;
import org.apache.kafka.common.message.DescribeClientQuotasResponseDataJsonConverter;
import org.apache.kafka.common.message.DescribeConfigsRequestDataJsonConverter;
import org.apache.kafka.common.message.DescribeConfigsResponseDataJsonConverter;
import org.apache.kafka.common.message.IncrementalAlterConfigsRequestDataJsonConverter;
import org.apache.kafka.common.message.IncrementalAlterConfigsResponseDataJsonConverter;
import org.apache.kafka.common.message.AlterClientQuotasResponseData;
import org.apache.kafka.common.message.DescribeClientQuotasResponseData;
import org.apache.kafka.common.message.DescribeConfigsResponseData;
import org.apache.kafka.common.message.IncrementalAlterConfigsResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.requests.ResponseHeader;

/**
 * Kafka's requests as they go over the wire, with nothing in between that would refuse them: {"call", "arguments":
 * {"body"}} on standard input, where the call is the name of a request; {"result"}, the body of the response, or
 * {"fault"} on standard output, a line each. Bodies are Kafka's own JSON rendering.
 */
public final class Rpc {
    private static final String CLIENT_ID = "differential";
    private static final int LIMIT_MS = 120_000;
    private static final ObjectMapper JSON =
        JsonMapper.builder().enable(JsonReadFeature.ALLOW_NON_NUMERIC_NUMBERS).build();

    private final DataOutputStream out;
    private final DataInputStream in;
    private int correlation;

    private Rpc(String host, int port) throws Exception {
        Socket socket = new Socket();
        socket.connect(new InetSocketAddress(host, port), LIMIT_MS);
        socket.setSoTimeout(LIMIT_MS);
        socket.setTcpNoDelay(true);
        out = new DataOutputStream(new BufferedOutputStream(socket.getOutputStream()));
        in = new DataInputStream(new BufferedInputStream(socket.getInputStream()));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // nothing else may come between the answers
        int colon = arguments[0].lastIndexOf(':');
        Rpc rpc = new Rpc(arguments[0].substring(0, colon), Integer.parseInt(arguments[0].substring(colon + 1)));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                ApiKeys api = ApiKeys.valueOf(request.get("call").asText());
                answer.set("result", rpc.exchange(api, request.get("arguments").get("body")));
            } catch (Exception | LinkageError fault) {
                answer.put("fault", fault.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private JsonNode exchange(ApiKeys api, JsonNode body) throws Exception {
        short version = api.latestVersion();
        send(api, request(api, body));
        byte[] bytes = new byte[in.readInt()];
        in.readFully(bytes);
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        int answered = ResponseHeader.parse(buffer, api.responseHeaderVersion(version)).correlationId();
        if (answered != correlation) {
            throw new IllegalStateException("The response is to " + answered + ", not to " + correlation);
        }
        return response(api, new ByteBufferAccessor(buffer), version);
    }

    private void send(ApiKeys api, ApiMessage body) throws Exception {
        short version = api.latestVersion();
        RequestHeaderData header = new RequestHeaderData()
            .setRequestApiKey(api.id)
            .setRequestApiVersion(version)
            .setClientId(CLIENT_ID)
            .setCorrelationId(++correlation);
        ByteBuffer head = written(header, api.requestHeaderVersion(version));
        ByteBuffer rest = written(body, version);
        out.writeInt(head.remaining() + rest.remaining());
        out.write(head.array(), head.arrayOffset() + head.position(), head.remaining());
        out.write(rest.array(), rest.arrayOffset() + rest.position(), rest.remaining());
        out.flush();
    }

    private static ByteBuffer written(ApiMessage message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        bytes.flip();
        return bytes;
    }

    private static ApiMessage request(ApiKeys api, JsonNode body) {
        short version = api.latestVersion();
        switch (api) {
            case DESCRIBE_CLIENT_QUOTAS:
                return DescribeClientQuotasRequestDataJsonConverter.read(body, version);
            case ALTER_CLIENT_QUOTAS:
                return AlterClientQuotasRequestDataJsonConverter.read(body, version);
            case DESCRIBE_CONFIGS:
                return DescribeConfigsRequestDataJsonConverter.read(body, version);
            case INCREMENTAL_ALTER_CONFIGS:
                return IncrementalAlterConfigsRequestDataJsonConverter.read(body, version);
            default:
                throw new IllegalArgumentException("not one of the requests that are compared: " + api);
        }
    }

    private static JsonNode response(ApiKeys api, ByteBufferAccessor bytes, short version) {
        switch (api) {
            case DESCRIBE_CLIENT_QUOTAS:
                return DescribeClientQuotasResponseDataJsonConverter.write(
                    new DescribeClientQuotasResponseData(bytes, version), version);
            case ALTER_CLIENT_QUOTAS:
                return AlterClientQuotasResponseDataJsonConverter.write(
                    new AlterClientQuotasResponseData(bytes, version), version);
            case DESCRIBE_CONFIGS:
                return DescribeConfigsResponseDataJsonConverter.write(
                    new DescribeConfigsResponseData(bytes, version), version);
            case INCREMENTAL_ALTER_CONFIGS:
                return IncrementalAlterConfigsResponseDataJsonConverter.write(
                    new IncrementalAlterConfigsResponseData(bytes, version), version);
            default:
                throw new IllegalArgumentException("not one of the requests that are compared: " + api);
        }
    }
}
