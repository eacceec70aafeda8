package headwater;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.Base64;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.classic.Dataset;

/** A planned frame of (INT, BINARY), run in one call: a step would ask the gateway fifteen times otherwise. */
public final class PlannedRun {
    /**
     * Run it as a job of this group, with one property; return its rows: number, length, bytes, and so on.
     *
     * In Base64: the gateway sends bytes so, too, but at the other end it looks at each of them.
     */
    public String collect(Dataset frame, String group, String description, String property, String value)
            throws IOException {
        SparkContext context = frame.sparkSession().sparkContext();
        context.setJobGroup(group, description, false);
        context.setLocalProperty(property, value);
        try {
            // A frame describes its whole plan to Spark's listeners at every run; its RDD, made once, does not.
            Object[] rows = (Object[]) frame.rdd().collect();
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            DataOutputStream data = new DataOutputStream(said);
            for (int n = 0; n < rows.length; n++) {
                byte[] payload = (byte[]) ((Row) rows[n]).get(1);
                data.writeInt(((Row) rows[n]).getInt(0));
                data.writeInt(payload.length);
                data.write(payload);
            }
            return Base64.getEncoder().encodeToString(said.toByteArray());
        } finally {
            context.setLocalProperty(property, null);
            context.clearJobGroup();
        }
    }
}
