// A made-up cluster that is the same at each start: rows as the contract has them, and changes as time goes on.

export function random(seed) {
  let state = seed >>> 0
  return () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
}

const STEMS = ['pretrain-7b', 'finetune-chat', 'eval-suite', 'tokenize', 'vit-sweep', 'rlhf-reward', 'diffusion-xl', 'asr-large', 'pose-probe', 'retrieval-index', 'distill-3b', 'speech-align', 'protein-fold', 'ranker', 'ablation']
const USERS = { language: ['mira', 'jonas', 'aiko', 'tobias'], vision: ['ana', 'lukas', 'sofia'], speech: ['petra', 'omar'], science: ['ines', 'wei', 'noor'] }
const TEAMS = Object.keys(USERS)
const KINDS = ['Job', 'GPUJob', 'JobSet', 'PyTorchJob']
const GPU = 'nvidia.com/gpu'
const SIZES = [1, 1, 2, 4, 8, 8, 8, 16, 16, 32, 64]

export function makeCluster({ jobs: manyJobs = 240, nodes: manyNodes = 48, seed = 7, empty = false } = {}) {
  const rnd = random(seed)
  const pick = (list) => list[Math.floor(rnd() * list.length)]
  const now = () => Date.now() / 1000
  const start = now()
  const flavors = [
    { name: 'h200', part: 0.35, gpus: 8 },
    { name: 'a100-80g', part: 0.45, gpus: 8 },
    { name: 'l40s', part: 0.2, gpus: 4 },
  ]
  const cluster = { jobs: {}, queues: {}, nodes: {}, runs: {}, past: [], events: [], revision: 1 }
  if (empty) {
    cluster.tick = () => null
    return cluster
  }
  // --- nodes ---
  let count = 0
  for (const flavor of flavors) {
    const many = Math.max(1, Math.round(manyNodes * flavor.part))
    for (let i = 0; i < many && count < manyNodes; i++, count++) {
      const name = `${flavor.name}-${String(i).padStart(3, '0')}`
      cluster.nodes[name] = {
        metadata: { name }, flavors: [flavor.name], trouble: '', until: null,
        capacity: { cpu: '128', memory: '1Ti', [GPU]: String(flavor.gpus) },
        used: { cpu: '4', memory: '16Gi', [GPU]: '0' }, occupants: [], awaited: [],
      }
    }
  }
  const names = Object.keys(cluster.nodes)
  const trouble = (name, what, until = null) => { if (cluster.nodes[name]) Object.assign(cluster.nodes[name], { trouble: what, until }) }
  trouble(names[3], 'GpuFault')
  trouble(names[Math.floor(names.length / 2)], 'Soaking', start + 840)
  trouble(names[Math.floor(names.length / 2) + 5], 'Cordoned')
  if (names.length > 200) for (let i = 11; i < names.length; i += 53) trouble(names[i], pick(['NotReady', 'Cordoned', 'GpuFault', 'Soaking']), null)
  const free = new Map(names.map((name) => [name, Number(cluster.nodes[name].capacity[GPU])]))
  const total = (flavor) => names.filter((n) => cluster.nodes[n].flavors[0] === flavor).reduce((sum, n) => sum + Number(cluster.nodes[n].capacity[GPU]), 0)

  // --- jobs ---
  let number = 0
  const newJob = (team, state) => {
    const user = pick(USERS[team])
    const stem = pick(STEMS)
    const jobName = `${stem}-${(number++).toString(36).padStart(3, '0')}`
    const gpus = pick(SIZES)
    const kind = pick(KINDS)
    const created = start - 600 - rnd() * 90000
    const perPod = Math.min(8, gpus)
    return {
      namespace: `team-${team}`, name: `${kind.toLowerCase()}-${jobName}-${(number * 7919 % 65536).toString(16)}`, uid: `uid-${number}`,
      jobKind: kind, jobName, queue: rnd() < 0.8 ? team : `${team}-batch`, clusterQueue: team, priority: pick([0, 0, 0, 100, 1000]),
      pods: gpus / perPod, gpus, amounts: { cpu: String(gpus * 12), memory: `${gpus * 96}Gi`, [GPU]: String(gpus) }, flavors: [], held: [], created, since: created,
      state, reason: '', message: '', evicted: '', position: null, warnings: [], obstacle: '', end: null, latestEnd: null, user, unscheduled: 0,
      hidden: false, neverFits: false, why: '', elapsedSeconds: null, expectedStart: null, because: '', forecast: null, fallenBack: null,
    }
  }
  const idOf = (job) => `${job.namespace}/${job.name}`
  const place = (job) => {
    for (const flavor of [...flavors].sort(() => rnd() - 0.5)) {
      const perPod = Math.min(8, job.gpus)
      if (perPod > flavor.gpus) continue
      const seats = []
      for (const name of names) {
        const node = cluster.nodes[name]
        if (node.flavors[0] !== flavor.name || (node.trouble && node.trouble !== 'Cordoned')) continue
        let room = free.get(name)
        while (room >= perPod && seats.length < job.pods) { seats.push(name); room -= perPod }
        if (seats.length === job.pods) break
      }
      if (seats.length < job.pods) continue
      job.flavors = [flavor.name]
      job.held = [{ flavor: flavor.name, resource: GPU, amount: String(job.gpus) }]
      seat(job, seats, perPod)
      return seats
    }
    return null
  }
  const seat = (job, seats, perPod) => {
    for (const name of seats) {
      free.set(name, free.get(name) - perPod)
      const node = cluster.nodes[name]
      const label = `${job.jobKind.toLowerCase()}/${job.jobName}`
      const there = node.occupants.find((each) => each.job === label && each.namespace === job.namespace)
      if (there) { there.pods++; there.amounts = { [GPU]: String(Number(there.amounts[GPU]) + perPod) } }
      else node.occupants = [...node.occupants, { job: label, namespace: job.namespace, outside: false, hidden: false, pods: 1, amounts: { [GPU]: String(perPod) } }]
      node.used = { ...node.used, [GPU]: String(Number(node.used[GPU]) + perPod) }
    }
  }
  const forecastOf = (job) => {
    const p50 = 900 * (1 + rnd() * 40) * Math.sqrt(job.gpus)
    return { p50, p90: p50 * (1.2 + rnd() * 1.6), source: pick(['model', 'history', 'hint']), samples: Math.floor(3 + rnd() * 90), flavor: null }
  }
  const runRow = (job, from, to, extra) => ({
    metadata: { namespace: job.namespace, name: job.name }, job: `${job.jobKind.toLowerCase()}/${job.jobName}`, hidden: job.hidden, user: job.user, queue: job.queue,
    clusterQueue: job.clusterQueue, state: 'Pending', gpus: job.gpus, from, to, after: [], toLatest: to + (to - from) * 0.4, fromLatest: from + 600, backfilled: false, mustEndBy: null, reserved: false, nodes: [], ...extra,
  })
  const beginRun = (job, at, seats) => {
    job.state = 'Running'; job.since = at; job.position = null; job.expectedStart = null; job.because = ''; job.reason = 'Started'
    job.message = 'All pods reached readiness and the workload is running'
    job.why = `on ${job.flavors.join(', ')}`
    job.forecast = forecastOf(job)
    const elapsed = now() - at
    job.end = at + Math.max(job.forecast.p50, elapsed + 300 + rnd() * 3000)
    job.latestEnd = job.end + (job.forecast.p90 - job.forecast.p50)
    job.elapsedSeconds = null
    const backfilled = rnd() < 0.12
    cluster.runs[idOf(job)] = runRow(job, at, job.end, { state: 'Running', toLatest: job.latestEnd, fromLatest: null, nodes: [...new Set(seats)], backfilled, mustEndBy: backfilled ? job.end + 1200 : null })
  }
  const manyRunning = Math.round(manyJobs * 0.4)
  for (let i = 0; i < manyRunning; i++) {
    const job = newJob(pick(TEAMS), 'Running')
    const seats = place(job)
    if (!seats) continue
    beginRun(job, Math.max(job.created + 60, start - rnd() * 40000), seats)
    if (i % 17 === 5) { job.warnings = [`it has run for 9h12m, longer than 9 of 10 runs like it (7h40m)`] }
    if (i % 23 === 9) { job.state = 'Starting'; job.unscheduled = 1; job.why = `on ${job.flavors[0]}; 1 pod is not scheduled` }
    cluster.jobs[idOf(job)] = job
  }
  const label = (text) => `hidden-${(text.length * 2654435761 >>> 0).toString(16).slice(0, 8)}`
  const order = { language: [], vision: [], speech: [], science: [] }
  while (Object.keys(cluster.jobs).length < manyJobs) {
    const team = pick(TEAMS)
    const job = newJob(team, 'Pending')
    const kind = rnd()
    if (kind < 0.02) { job.state = 'Inactive'; job.reason = 'OnHold'; job.why = 'a user deactivated it: spec.active of its Workload is false, so it is not queued' }
    else if (kind < 0.03) { job.state = 'Not queued'; job.reason = 'NoQueue'; job.queue = ''; job.clusterQueue = ''; job.why = 'NoQueue: the job has no label kueue.x-k8s.io/queue-name' }
    else if (kind < 0.06) { job.state = 'Failed'; job.since = start - rnd() * 4000; job.reason = 'Failed'; job.message = 'Job has reached the specified backoff limit'; job.why = 'Failed: Job has reached the specified backoff limit' }
    else if (kind < 0.12) { job.state = 'Succeeded'; job.since = start - rnd() * 8000 }
    else if (kind < 0.13) { job.state = 'Stopping'; job.flavors = ['a100-80g']; job.evicted = 'preempted for gpujob/pretrain-7b-001 (InCohortReclamation)'; job.why = job.evicted; job.since = start - 12; job.held = [{ flavor: 'a100-80g', resource: GPU, amount: String(job.gpus) }] }
    else {
      const short = Math.ceil(rnd() * job.gpus)
      const flavor = pick(flavors).name
      job.reason = 'WaitingForQuota'
      job.message = `couldn't assign flavors to pod set worker: insufficient unused quota for ${GPU} in flavor ${flavor}, ${short} more needed`
      job.why = `WaitingForQuota: ${short} more GPUs of ${flavor} needed`
      if (rnd() < 0.015) { job.gpus = 1024; job.pods = 128; job.amounts[GPU] = '1024'; job.neverFits = true; job.reason = 'ExceedsMaxQuota'; job.why = 'ExceedsMaxQuota: it asks for 1024 GPUs, and its queue can have 256 at most' }
      else order[team].push(job)
      job.forecast = forecastOf(job)
    }
    if (rnd() < 0.04 && job.state !== 'Not queued') {
      const shown = label(job.name + number)
      Object.assign(job, { hidden: true, namespace: '', name: shown, jobName: shown, jobKind: '', user: '', queue: '', why: '', message: '' })
    }
    cluster.jobs[job.namespace ? idOf(job) : job.name] = job
  }
  // --- positions and starts: each starts when enough has ended ---
  for (const team of TEAMS) {
    order[team].sort((a, b) => b.priority - a.priority || a.created - b.created)
    order[team].forEach((job, index) => { job.position = index })
  }
  const line = TEAMS.flatMap((team) => order[team]).sort((a, b) => a.position - b.position || a.created - b.created)
  const ends = Object.values(cluster.runs).map((run) => [run.to, run.gpus, run.job]).sort((a, b) => a[0] - b[0])
  let [room, at, ender] = [[...free.values()].reduce((a, b) => a + b, 0) * 0.3, start + 240, '']
  line.slice(0, 400).forEach((job, index) => {
    while (room < job.gpus && ends.length) {
      const [end, gpus, who] = ends.shift()
      room += gpus
      if (end > at) [at, ender] = [end, who]
    }
    if (room < job.gpus) return
    room -= job.gpus
    const until = at + job.forecast.p50
    const place = ends.findIndex((each) => each[0] > until)
    ends.splice(place < 0 ? ends.length : place, 0, [until, job.gpus, `${job.jobKind.toLowerCase()}/${job.jobName}`])
    job.expectedStart = { p50: at, p90: rnd() < 0.06 ? null : at + (at - start) * (0.3 + rnd()) }
    job.because = ender ? `after ${ender} ends` : ''
    cluster.runs[job.hidden ? job.name : idOf(job)] = runRow(job, at, until, { fromLatest: job.expectedStart.p90, reserved: index < 6, after: ender ? [ender] : [] })
  })
  // a pod outside of queues, and pods that are on their way
  const last = names[names.length - 1]
  cluster.nodes[last].occupants = [...cluster.nodes[last].occupants, { job: 'daemonset/dcgm-burn', namespace: 'monitoring', outside: true, hidden: false, pods: 1, amounts: { [GPU]: '1' } }]
  const waiting = names.find((name) => free.get(name) >= 4 && !cluster.nodes[name].trouble)
  if (waiting) cluster.nodes[waiting].awaited = [{ job: 'job/eval-suite-0zz', namespace: 'team-vision', outside: false, hidden: false, pods: 1, amounts: { [GPU]: '4' } }]
  const withCards = new Set(names.slice(0, 12))
  function refreshCards(name) {
    if (!withCards.has(name)) return
    const node = cluster.nodes[name]
    const cards = []
    let index = 0
    for (const each of node.occupants) for (let i = 0; i < Number(each.amounts[GPU]) && index < 8; i++, index++) cards.push(card(index, name, [{ ...each, pods: 1, milli: 1000, memory: '80Gi' }]))
    while (index < Number(node.capacity[GPU])) cards.push(card(index++, name, []))
    if (node.trouble === 'GpuFault') Object.assign(cards[2], { healthy: false, freeMilli: 0 })
    cluster.nodes[name] = { ...node, cards }
  }
  names.forEach(refreshCards)
  function card(index, name, occupants) {
    return { uuid: `GPU-${name}-${index}`, index, model: 'H200', mode: '', healthy: true, milli: 1000, freeMilli: occupants.length ? 0 : 1000, memory: '141Gi', freeMemory: occupants.length ? '0' : '141Gi', occupants }
  }

  // --- queues ---
  const COHORTS = { language: ['models', 'company'], vision: ['models', 'company'], speech: ['perception', 'company'], science: ['company'] }
  const parts = { language: 0.4, vision: 0.25, speech: 0.15, science: 0.2 }
  const refreshQueues = () => {
    for (const team of TEAMS) {
      const own = Object.values(cluster.jobs).filter((job) => job.clusterQueue === team)
      const holds = (job) => ['Running', 'Starting', 'Reserved', 'Stopping'].includes(job.state)
      const sum = (list) => list.reduce((all, job) => all + job.gpus, 0)
      const quotas = flavors.map((flavor) => {
        const nominal = Math.round(total(flavor.name) * parts[team])
        const used = sum(own.filter((job) => holds(job) && job.flavors[0] === flavor.name))
        return { flavor: flavor.name, resource: GPU, nominal: String(nominal), used: String(used), borrowed: String(COHORTS[team].length ? Math.max(0, used - nominal) : 0), borrowingLimit: team === 'speech' ? String(nominal) : null, lendingLimit: team === 'vision' ? String(Math.round(nominal / 2)) : null }
      })
      quotas.push({ flavor: 'cpu-only', resource: 'cpu', nominal: '2000', used: '312', borrowed: '0', borrowingLimit: null, lendingLimit: null })
      const nominal = quotas.slice(0, 3).reduce((all, each) => all + Number(each.nominal), 0)
      const used = quotas.slice(0, 3).reduce((all, each) => all + Number(each.used), 0)
      const base = { namespace: '', hidden: false, localQueue: '', cohorts: [], nominalGpus: null, borrowedGpus: null, share: null, weight: '1', rank: null, fairUsage: null, consumed: {}, consumedAt: null, halfLifeSeconds: null, quotas: [], note: '' }
      const tally = (list) => ({ usedGpus: sum(list.filter(holds)), pendingGpus: sum(list.filter((job) => job.state === 'Pending')), running: list.filter(holds).length, waiting: list.filter((job) => job.state === 'Pending').length })
      cluster.queues[`cq/${team}`] = { ...base, level: 'ClusterQueue', name: team, clusterQueue: team, cohorts: COHORTS[team], ...tally(own), nominalGpus: nominal, usedGpus: used, borrowedGpus: COHORTS[team].length ? quotas.reduce((all, each) => all + Number(each.borrowed), 0) : 0, share: COHORTS[team].length ? Math.max(0, used - nominal) * 3.1 : 0, rank: COHORTS[team].length ? TEAMS.indexOf(team) % 2 + 1 : null, quotas, note: team === 'science' ? '' : '' }
      for (const queue of [team, `${team}-batch`]) {
        const inside = own.filter((job) => job.queue === queue)
        cluster.queues[`lq/team-${team}/${queue}`] = { ...base, level: 'LocalQueue', namespace: `team-${team}`, name: queue, clusterQueue: team, localQueue: queue, ...tally(inside), fairUsage: sum(inside.filter(holds)) * 0.83, consumed: { [GPU]: sum(inside.filter(holds)) * 0.83 }, consumedAt: start - 30, halfLifeSeconds: 604800, rank: queue === team ? 1 : 2 }
        for (const user of USERS[team]) {
          const hers = inside.filter((job) => job.user === user)
          if (hers.length) cluster.queues[`user/team-${team}/${queue}/${user}`] = { ...base, level: 'User', namespace: `team-${team}`, name: user, clusterQueue: team, localQueue: queue, ...tally(hers) }
        }
      }
    }
  }
  refreshQueues()

  // --- past ---
  const wanted = names.length * 8 * 24 * 0.85
  let lastDay = 0
  for (let i = 0; i < Math.max(600, manyJobs); i++) {
    const team = pick(TEAMS)
    const ended = start - (i % 3 && lastDay < wanted ? rnd() * 86400 : rnd() * 30 * 86400)
    const ran = 300 + rnd() ** 2 * 40000
    const waited = rnd() ** 3 * 20000
    const gpus = pick(SIZES)
    if (i % 3) lastDay += (gpus * ran) / 3600
    const state = rnd() < 0.12 ? 'Failed' : rnd() < 0.5 ? 'Succeeded' : 'Ended'
    cluster.past.push({
      hidden: false, namespace: `team-${team}`, jobName: `${pick(STEMS)}-${i.toString(36)}`, jobKind: state === 'Ended' ? '' : pick(KINDS), user: pick(USERS[team]), localQueue: team, clusterQueue: team,
      flavor: pick(flavors).name, gpus, pods: Math.max(1, gpus / 8), submitted: ended - ran - waited, started: ended - ran, ended, waitedSeconds: waited, ranSeconds: ran, gpuHours: Math.round(gpus * ran / 3.6) / 1000,
      state, message: state === 'Failed' ? 'Job has reached the specified backoff limit' : '', preemptions: state === 'Ended' ? null : rnd() < 0.1 ? 1 : 0,
    })
  }
  cluster.past.sort((a, b) => b.ended - a.ended)

  // --- events ---
  let eventNumber = 1
  const event = (job, what, text = '', at = now(), reason = '') => {
    const n = eventNumber++
    cluster.events.push({ metadata: { name: `${job.name}.${n}`, uid: String(n) }, at, event: what, reason, text, hidden: job.hidden, namespace: job.namespace, workload: job.name, jobKind: job.jobKind, jobName: job.jobName, user: job.user, queue: job.queue, clusterQueue: job.clusterQueue, gpus: job.gpus, pods: job.pods, flavors: job.flavors })
    if (cluster.events.length > 3000) cluster.events.shift()
  }
  const some = Object.values(cluster.jobs)
  for (let i = 0; i < 90; i++) {
    const job = pick(some)
    const at = start - (90 - i) * 47
    const kind = rnd()
    const preemptor = pick(some)
    if (kind < 0.2) event(job, 'Stopping', `preempted for ${preemptor.hidden ? preemptor.jobName : `${preemptor.jobKind.toLowerCase()}/${preemptor.jobName}`} (${pick(['InCohortReclamation', 'InClusterQueue', 'InCohortFairSharing'])})`, at, 'Preempted')
    else if (kind < 0.3) event(job, 'StartMoved', 'the start moved by 24m: job/pretrain-7b-00a runs longer than forecast', at)
    else if (kind < 0.55) event(job, 'Submitted', '', at)
    else if (kind < 0.8) event(job, 'Running', 'All pods reached readiness and the workload is running', at)
    else event(job, 'Succeeded', 'Job finished successfully', at)
  }

  // --- what happens ---
  cluster.tick = () => {
    const put = { jobs: {}, nodes: {}, runs: {}, queues: {} }
    const gone = { jobs: [], runs: [] }
    const running = Object.entries(cluster.jobs).filter(([, job]) => job.state === 'Running' && !job.hidden)
    for (let i = 0; i < 2 && running.length; i++) {
      const [id, job] = pick(running)
      cluster.jobs[id] = put.jobs[id] = { ...job, state: 'Succeeded', since: now(), end: null, latestEnd: null, reason: 'Succeeded', message: 'Job finished successfully', why: '', held: [], elapsedSeconds: null }
      const mine = `${job.jobKind.toLowerCase()}/${job.jobName}`
      for (const name of names) {
        const node = cluster.nodes[name]
        const there = node.occupants.find((each) => each.job === mine && each.namespace === job.namespace)
        if (!there) continue
        const back = Number(there.amounts[GPU])
        free.set(name, free.get(name) + back)
        cluster.nodes[name] = put.nodes[name] = { ...node, occupants: node.occupants.filter((each) => each !== there), used: { ...node.used, [GPU]: String(Number(node.used[GPU]) - back) } }
        refreshCards(name)
        put.nodes[name] = cluster.nodes[name]
      }
      delete cluster.runs[id]; gone.runs.push(id)
      event(job, 'Succeeded', 'Job finished successfully')
    }
    for (const team of TEAMS) {
      const line = order[team]
      for (const job of line.slice(0, 12)) {
        const id = idOf(job)
        if (job.state !== 'Pending' || job.hidden || !cluster.jobs[id] || rnd() < 0.4) continue
        const copy = { ...job }
        const seats = place(copy)
        if (!seats) continue
        beginRun(copy, now(), seats)
        line.splice(line.indexOf(job), 1)
        cluster.jobs[id] = put.jobs[id] = copy
        put.runs[id] = cluster.runs[id]
        for (const name of seats) { cluster.nodes[name] = { ...cluster.nodes[name] }; refreshCards(name); put.nodes[name] = cluster.nodes[name] }
        event(copy, 'Running', copy.message)
        break
      }
      line.slice(0, 12).forEach((job, index) => {
        const id = job.hidden ? job.name : idOf(job)
        const known = cluster.jobs[id]
        if (known && known.state === 'Pending') cluster.jobs[id] = line[index] = put.jobs[id] = { ...known, position: index }
      })
    }
    const over = Object.entries(cluster.jobs).filter(([, job]) => job.state === 'Succeeded' && now() - job.since > 120 && job.since > start)
    for (const [id] of over.slice(0, 5)) { delete cluster.jobs[id]; delete put.jobs[id]; gone.jobs.push(id) }
    while (Object.keys(cluster.jobs).length < manyJobs) {
      const team = pick(TEAMS)
      const fresh = newJob(team, 'Pending')
      Object.assign(fresh, { created: now(), since: now(), reason: 'PendingEvaluation', why: 'not evaluated yet', position: order[team].length, forecast: forecastOf(fresh) })
      fresh.expectedStart = { p50: now() + 4000 * (1 + rnd()), p90: now() + 14000 * (1 + rnd()) }
      order[team].push(fresh)
      cluster.jobs[idOf(fresh)] = put.jobs[idOf(fresh)] = fresh
      event(fresh, 'Submitted')
    }
    const before = cluster.queues
    cluster.queues = { ...before }
    refreshQueues()
    for (const [id, row] of Object.entries(cluster.queues)) if (JSON.stringify(before[id]) !== JSON.stringify(row)) put.queues[id] = row
    cluster.revision++
    return { put, gone }
  }
  return cluster
}
