/** Shown where there are no jobs at all: how to submit one. */
import { useTable } from '../api/live'
import { useNamespace } from '../view'
import { Commands } from './commands'
import { Panel } from './panel'

export function FirstJob() {
  const namespace = useNamespace()
  const queues = useTable('queues')
  const queue = queues.list.find((row) => row.level === 'LocalQueue' && !row.hidden && (!namespace || row.namespace === namespace))
  const space = queue?.namespace || namespace || 'NAMESPACE'
  const name = queue?.name ?? 'LOCALQUEUE'
  const manifest = `apiVersion: batch/v1
kind: Job
metadata:
  name: first
  namespace: ${space}
  labels:
    kueue.x-k8s.io/queue-name: ${name}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: IMAGE
        command: [nvidia-smi]
        resources:
          limits: {nvidia.com/gpu: 1}`
  return (
    <Panel title="No job is queued yet">
      <div className="stack prose">
        {queues.list.length === 0 && (
          <p>
            The cluster has no queue that you may see. An administrator creates a ResourceFlavor, a ClusterQueue with quota, and a LocalQueue in your
            namespace.
          </p>
        )}
        <p>
          A job names its LocalQueue in the label <code>kueue.x-k8s.io/queue-name</code>. Gangline holds it until all of its pods can start. Save this
          as <code>first.yaml</code>:
        </p>
        <pre className="log" tabIndex={0} aria-label="The manifest of a first job">{manifest}</pre>
        <p>The first command says when it would start, the second submits it, and the third explains why it waits.</p>
        <Commands texts={['gangline whatif -f first.yaml', 'kubectl create -f first.yaml', `gangline why job/first -n ${space}`]} />
      </div>
    </Panel>
  )
}
