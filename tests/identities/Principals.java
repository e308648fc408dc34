import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/** Prints what Java and Kafka make of certificates and rules: one order a line in a file, its parts in base64. */
public final class Principals {
    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] parts = line.split("\t", -1);
            String answer;
            try {
                answer = "ok\t" + encoded(parts[0].equals("subject") ? subject(parts[1]) : mapped(parts[1], parts[2]));
            } catch (Exception | StackOverflowError error) {
                answer = "refused\t" + encoded(String.valueOf(error));
            }
            System.out.println(answer);
        }
    }

    private static String subject(String certificate) throws Exception {
        ByteArrayInputStream content = new ByteArrayInputStream(Base64.getDecoder().decode(certificate));
        X509Certificate found = (X509Certificate) CertificateFactory.getInstance("X.509").generateCertificate(content);
        return found.getSubjectX500Principal().getName();
    }

    private static String mapped(String rules, String subject) throws Exception {
        return SslPrincipalMapper.fromRules(text(rules)).getName(text(subject));
    }

    private static String text(String given) {
        return new String(Base64.getDecoder().decode(given), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
