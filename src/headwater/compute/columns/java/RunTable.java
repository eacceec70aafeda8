package headwater;

import java.util.Collections;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A collection at a time, as slices of its runs. */
public final class RunTable implements Table, SupportsRead {
    private final String name;
    private final StructType schema;
    private final RunSlices[] tasks;
    private final long rows;

    public RunTable(String name, StructType schema, RunSlices[] tasks, long rows) {
        this.name = name;
        this.schema = schema;
        this.tasks = tasks;
        this.rows = rows;
    }

    public String name() {
        return name;
    }

    public StructType schema() {
        return schema;
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new RunScan(name, schema, tasks, rows);
    }
}
